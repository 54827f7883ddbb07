"""The checks of `gym-cli env test`: they call an environment with made-up calls."""

from gymmesh_resource.checks.calls import Finding
from gymmesh_resource.checks.trial import try_out
from gymmesh_resource.sample_arguments import CannotMakeUp, made_up

__all__ = ["CannotMakeUp", "Finding", "made_up", "try_out"]
