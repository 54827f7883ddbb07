"""What a trainer gets: rollouts and their groups (rollout.py), and tokens (samples.py). Pure."""

from gymmesh_trainers.rollouts.rollout import FailedRollout, Rollout, RolloutGroup, advantages
from gymmesh_trainers.rollouts.samples import NO_VERSION, TrainingSample, samples_of

__all__ = [
    "NO_VERSION",
    "FailedRollout",
    "Rollout",
    "RolloutGroup",
    "TrainingSample",
    "advantages",
    "samples_of",
]
