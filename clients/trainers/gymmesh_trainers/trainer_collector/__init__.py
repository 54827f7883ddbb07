"""Groups of finished rollouts for a trainer, step by step.

collector.py   `TrainerCollector` and `collect`: steps, evaluation, single rollouts
sync.py        the same for synchronous code
steps.py       a step: groups until it is full, and then an end
series.py      what steps share: runs under way, tasks, counts, the saved state
runs.py        the runs of a step, with their files
filters.py     rules that choose the groups of a step (pure)
sources.py     the collector's own tasks: lists, stages and mixes, with their positions (pure)
state.py       the saved state (pure)
grouping.py    groups of finished rollouts (pure)
weights.py     the weights' versions, and what is too old (pure)
missing_tokens.py
               warns of a model that gives no tokens
evaluation.py  what an evaluation comes to (pure)
reading.py     how the tasks of a step are read
tasks.py       tasks as trainers have them
stored.py      rollouts of a step that is resumed
settings.py    how to collect
place.py       the mesh: in this process, or elsewhere
shared_groups.py
               a rank's share of the groups that another process collects
shared_mesh.py one mesh for hooks that are called for each rollout
loop_thread.py an event loop in a thread of its own
"""

from gymmesh_trainers.trainer_collector.collector import TrainerCollector, collect
from gymmesh_trainers.trainer_collector.evaluation import Evaluation
from gymmesh_trainers.trainer_collector.filters import pass_rate, spread
from gymmesh_trainers.trainer_collector.loop_thread import LoopThread
from gymmesh_trainers.trainer_collector.place import MeshPlace, Model, open_environment
from gymmesh_trainers.trainer_collector.settings import Settings
from gymmesh_trainers.trainer_collector.shared_groups import SharedGroups, SyncSharedGroups
from gymmesh_trainers.trainer_collector.shared_mesh import SharedMesh
from gymmesh_trainers.trainer_collector.sources import Mix, Stages, TaskSet, TaskStream
from gymmesh_trainers.trainer_collector.steps import Step
from gymmesh_trainers.trainer_collector.sync import SyncCollector, SyncStep, collect_sync
from gymmesh_trainers.trainer_collector.tasks import TaskLike, messages_of, task_written

__all__ = [
    "Evaluation",
    "LoopThread",
    "MeshPlace",
    "Mix",
    "Model",
    "Settings",
    "SharedGroups",
    "SharedMesh",
    "Stages",
    "Step",
    "SyncCollector",
    "SyncSharedGroups",
    "SyncStep",
    "TaskLike",
    "TaskSet",
    "TaskStream",
    "TrainerCollector",
    "collect",
    "collect_sync",
    "messages_of",
    "open_environment",
    "pass_rate",
    "spread",
    "task_written",
]
