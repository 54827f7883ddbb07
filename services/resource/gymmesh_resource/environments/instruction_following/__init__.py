"""Prompts with instructions that can be checked: lengths, formats, words, languages."""

from typing import TYPE_CHECKING

from gymmesh_resource.environments._lazy_class import lazy_class

if TYPE_CHECKING:
    from gymmesh_resource.environments.instruction_following.environment import (
        InstructionFollowingEnvironment as InstructionFollowingEnvironment,
    )

__all__ = ["InstructionFollowingEnvironment"]

__getattr__ = lazy_class(__name__, "InstructionFollowingEnvironment")
