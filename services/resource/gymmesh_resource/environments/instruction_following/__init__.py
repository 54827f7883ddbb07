"""Prompts with instructions that can be checked: lengths, formats, words, languages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .environment import (
        InstructionFollowingEnvironment as InstructionFollowingEnvironment,
    )

__all__ = ["InstructionFollowingEnvironment"]


def __getattr__(name: str) -> Any:
    # Late, because worker processes import `verdict` and need no gRPC for that.
    if name != "InstructionFollowingEnvironment":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .environment import InstructionFollowingEnvironment

    return InstructionFollowingEnvironment
