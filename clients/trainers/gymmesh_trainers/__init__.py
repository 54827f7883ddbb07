"""Rollouts for trainers: groups with exact tokens, in the trainer's own loop or by its hooks.

collecting.py  groups step by step: `collect`, `TrainerCollector`
settings.py    how to collect
sync.py        the same for synchronous code
rollouts.py    rollouts, groups and advantages (pure)
samples.py     a rollout's tokens as training samples (pure)
tasks.py       tasks as trainers have them
place.py       the mesh: in this process, or elsewhere
stored.py      rollouts of a step that is resumed
testing.py     one rollout with a scripted model
engine.py      the trainer's own inference as a model
loop_thread.py an event loop in a thread of its own
trl.py, verl.py, openrlhf.py, nemo_rl.py, skyrl.py, ray.py
               one trainer's hook each; imported by name, as each needs its trainer
trl_environment.py
               TRL's other hook, where TRL runs the loop: trl_episode.py is one rollout of it,
               trl_tools.py its tools as methods (pure), trl_transcript.py what is judged (pure)
"""

from gymmesh_model.backends.scripted import ScriptedBackend
from gymmesh_model.backends.tokens_in import Generation, SamplingParams, TokenBackend
from gymmesh_trainers.collecting import TrainerCollector, collect
from gymmesh_trainers.rollouts import FailedRollout, Rollout, RolloutGroup, advantages
from gymmesh_trainers.samples import TrainingSample, samples_of
from gymmesh_trainers.settings import Settings
from gymmesh_trainers.sync import SyncCollector, collect_sync
from gymmesh_trainers.testing import RolloutFailed, run_one

__all__ = [
    "FailedRollout",
    "Generation",
    "Rollout",
    "RolloutFailed",
    "RolloutGroup",
    "SamplingParams",
    "ScriptedBackend",
    "Settings",
    "SyncCollector",
    "TokenBackend",
    "TrainerCollector",
    "TrainingSample",
    "advantages",
    "collect",
    "collect_sync",
    "run_one",
    "samples_of",
]
