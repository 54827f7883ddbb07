"""Groups of finished rollouts for a trainer, step by step.

collector.py   the steps: `collect`, `TrainerCollector`
settings.py    how to collect
sync.py        the same for synchronous code
tasks.py       tasks as trainers have them
place.py       the mesh: in this process, or elsewhere
stored.py      rollouts of a step that is resumed
single.py      one mesh for hooks that are called for each rollout
loop_thread.py an event loop in a thread of its own
"""
