"""The game environment: puzzles, and games against an opponent that plays at random."""

from .environment import GameEnvironment

__all__ = ["GameEnvironment"]
