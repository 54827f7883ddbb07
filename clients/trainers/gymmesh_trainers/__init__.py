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
trl.py, verl.py, openrlhf.py, nemo_rl.py, skyrl.py, ray.py
               one trainer's hook each; imported by name, as each needs its trainer
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
