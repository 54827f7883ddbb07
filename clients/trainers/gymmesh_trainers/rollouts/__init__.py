"""What a trainer gets: rollouts and their groups (rollout.py), and tokens (samples.py). Pure."""

from gymmesh_trainers.rollouts.rollout import (
    EPSILON,
    FailedRollout,
    Rollout,
    RolloutGroup,
    advantages,
)
from gymmesh_trainers.rollouts.samples import TrainingSample, samples_of

__all__ = [
    "EPSILON",
    "FailedRollout",
    "Rollout",
    "RolloutGroup",
    "TrainingSample",
    "advantages",
    "samples_of",
]
