"""Trying out an environment as `gym-cli env test` does: made-up calls, and what they found."""

from ..made_up import CannotMakeUp, made_up
from .calls import Finding
from .trial import try_out

__all__ = ["CannotMakeUp", "Finding", "made_up", "try_out"]
