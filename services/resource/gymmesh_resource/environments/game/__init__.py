"""The game environment: puzzles, and games against an opponent that plays at random."""

from gymmesh_resource.environments.game.environment import GameEnvironment

__all__ = ["GameEnvironment"]
