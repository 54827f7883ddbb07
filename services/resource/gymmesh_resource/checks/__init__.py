"""Trying out an environment as `gym-cli env test` does: made-up calls, and what they found."""

from gymmesh_resource.checks.calls import Finding
from gymmesh_resource.checks.trial import try_out
from gymmesh_resource.sample_arguments import CannotMakeUp, made_up

__all__ = ["CannotMakeUp", "Finding", "made_up", "try_out"]
