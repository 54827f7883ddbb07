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

from gymmesh_trainers.collecting.collector import TrainerCollector, collect
from gymmesh_trainers.collecting.loop_thread import LoopThread
from gymmesh_trainers.collecting.place import MeshPlace, Model, open_environment
from gymmesh_trainers.collecting.settings import Settings
from gymmesh_trainers.collecting.single import SharedMesh
from gymmesh_trainers.collecting.sync import SyncCollector, collect_sync
from gymmesh_trainers.collecting.tasks import TaskLike, messages_of, task_written

__all__ = [
    "LoopThread",
    "MeshPlace",
    "Model",
    "Settings",
    "SharedMesh",
    "SyncCollector",
    "TaskLike",
    "TrainerCollector",
    "collect",
    "collect_sync",
    "messages_of",
    "open_environment",
    "task_written",
]
