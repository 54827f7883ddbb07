"""The reasoning_gym environment: procedurally generated puzzles, judged by their own scorers."""

from typing import TYPE_CHECKING

from gymmesh_resource.environments._late import late_class

if TYPE_CHECKING:
    from gymmesh_resource.environments.reasoning_gym.environment import (
        ReasoningGymEnvironment as ReasoningGymEnvironment,
    )


__getattr__ = late_class(__name__, "ReasoningGymEnvironment")

__all__ = [
    "ReasoningGymEnvironment",
]
