"""Prompts with instructions that can be checked: lengths, formats, words, languages."""

from typing import TYPE_CHECKING

from .._late import late_class

if TYPE_CHECKING:
    from .environment import InstructionFollowingEnvironment as InstructionFollowingEnvironment

__all__ = ["InstructionFollowingEnvironment"]

__getattr__ = late_class(__name__, "InstructionFollowingEnvironment")
