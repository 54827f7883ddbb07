"""What the trainers' hooks share.

lost.py              sampled tokens that a trainer has no room for: refused, or warned of
refusals.py          what a hook can't hand over: images, seeds
experts.py           routed experts, in the form that a trainer has them
completion_limit.py  ends a rollout where the trainer's longest completion ends
repeats.py           which repeat of its task a rollout is
siblings.py          the rewards of a group, for a rollout in it that has none
judged.py            the reward that a rollout is trained with, and the last ones of a process
"""

from gymmesh_trainers.hooks.completion_limit import CompletionLimit
from gymmesh_trainers.hooks.experts import ROUTED_EXPERTS, experts_given, experts_of
from gymmesh_trainers.hooks.judged import JudgedRollouts, trained_reward
from gymmesh_trainers.hooks.lost import Lost, LostTokens, paths_left_out
from gymmesh_trainers.hooks.refusals import refuse_images, refuse_sampling, refuse_seed
from gymmesh_trainers.hooks.repeats import Repeats, first_repeat, rank_of_process
from gymmesh_trainers.hooks.siblings import Siblings, filler_rewards

__all__ = [
    "ROUTED_EXPERTS",
    "CompletionLimit",
    "JudgedRollouts",
    "Lost",
    "LostTokens",
    "Repeats",
    "Siblings",
    "experts_given",
    "experts_of",
    "filler_rewards",
    "first_repeat",
    "paths_left_out",
    "rank_of_process",
    "refuse_images",
    "refuse_sampling",
    "refuse_seed",
    "trained_reward",
]
