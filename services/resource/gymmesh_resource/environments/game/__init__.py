"""The game environment: puzzles, and games against an opponent that plays at random."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._late import late_class

if TYPE_CHECKING:
    from .environment import GameEnvironment as GameEnvironment

__all__ = ["GameEnvironment"]

__getattr__ = late_class(__name__, "GameEnvironment")
