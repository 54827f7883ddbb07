"""Rollouts for trainers: groups with exact tokens, in the trainer's own loop or by its hooks.

trainer_collector/
               groups step by step: `collect`, `TrainerCollector`, `SyncCollector`
rollouts/      what they give: rollouts, groups, advantages and training samples (pure)
testing.py     one rollout with a scripted model
engine.py      the trainer's own inference as a model
weights/       new weights for vLLM and SGLang servers, then their announcement
trl/, nemo_rl/, slime/, verl.py, openrlhf.py, skyrl.py, areal.py, tinker.py, art.py, ray.py
               one trainer's hook each; imported by name, as each needs its trainer
"""

from gymmesh_model.backends.engine import Engine
from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_model.backends.scores import TokenScores
from gymmesh_model.backends.scripted import ScriptedBackend
from gymmesh_model.backends.token_engines import SglangEngine, VllmEngine
from gymmesh_model.backends.tokens_in import TokenBackend
from gymmesh_trainers.rollouts import (
    FailedRollout,
    Rollout,
    RolloutGroup,
    SampleSideData,
    TrainingSample,
    advantages,
    samples_of,
)
from gymmesh_trainers.testing import RolloutFailed, run_one
from gymmesh_trainers.trainer_collector import (
    Evaluation,
    Mix,
    Settings,
    SharedGroups,
    Stages,
    Step,
    SyncCollector,
    SyncSharedGroups,
    SyncStep,
    TaskSet,
    TrainerCollector,
    collect,
    collect_sync,
    pass_rate,
    spread,
)

__all__ = [
    "Engine",
    "Evaluation",
    "FailedRollout",
    "Generation",
    "Mix",
    "Rollout",
    "RolloutFailed",
    "RolloutGroup",
    "SampleSideData",
    "SamplingParams",
    "ScriptedBackend",
    "Settings",
    "SglangEngine",
    "SharedGroups",
    "Stages",
    "Step",
    "SyncCollector",
    "SyncSharedGroups",
    "SyncStep",
    "TaskSet",
    "TokenBackend",
    "TokenScores",
    "TrainerCollector",
    "TrainingSample",
    "VllmEngine",
    "advantages",
    "collect",
    "collect_sync",
    "pass_rate",
    "run_one",
    "samples_of",
    "spread",
]
