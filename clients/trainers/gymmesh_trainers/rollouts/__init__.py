"""What a trainer gets: rollouts and their groups, and their exact tokens. Pure.

rollout.py       a rollout, one that failed, the group of a task's repeats
samples.py       its tokens as sequences to train on
token_tree.py    the tree of its calls' tokens that these are views of
credits.py       rewards of parts of it, by the calls that earned them
side_data.py     tensors beside the tokens of a sample
token_counts.py  how many tokens were sampled, and how
"""

from gymmesh_trainers.rollouts.credits import tool_rewards, turn_scores
from gymmesh_trainers.rollouts.rollout import (
    FailedRollout,
    Rollout,
    RolloutGroup,
    advantages,
    versions_of,
)
from gymmesh_trainers.rollouts.samples import (
    NO_VERSION,
    SampleTurn,
    TrainingSample,
    merged,
    samples_of,
)
from gymmesh_trainers.rollouts.side_data import SampleSideData
from gymmesh_trainers.rollouts.token_counts import TokenCounts

__all__ = [
    "NO_VERSION",
    "FailedRollout",
    "Rollout",
    "RolloutGroup",
    "SampleSideData",
    "SampleTurn",
    "TokenCounts",
    "TrainingSample",
    "advantages",
    "merged",
    "samples_of",
    "tool_rewards",
    "turn_scores",
    "versions_of",
]
