"""Rewards of several named functions, and plain functions as environments.

marking.py    `@reward`, and the marked methods of a class
call.py       the arguments of a reward function, by its parameters' names
function.py   an environment made of a plain function
rewards.py    an environment's reward functions with their weights, and their sum
"""

from gymmesh_resource.rewards.call import RewardCall
from gymmesh_resource.rewards.function import function_environment
from gymmesh_resource.rewards.rewards import Rewards

__all__ = [
    "RewardCall",
    "Rewards",
    "function_environment",
]
