"""The reasoning_gym environment: procedurally generated puzzles, judged by their own scorers."""

from typing import TYPE_CHECKING

from gymmesh_resource.environments._lazy_class import lazy_class

if TYPE_CHECKING:
    from gymmesh_resource.environments.reasoning_gym.environment import (
        ReasoningGymEnvironment as ReasoningGymEnvironment,
    )


__getattr__ = lazy_class(__name__, "ReasoningGymEnvironment")

__all__ = [
    "ReasoningGymEnvironment",
]
