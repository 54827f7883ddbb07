"""The value of a game, at its end and before. Pure.

Invariant: the reward of a turn is the game's value after the turn minus the value before it. So the
rewards of all turns add up to the verdict's reward.
"""

from __future__ import annotations

from dataclasses import dataclass

from gymmesh_resource.environments.game.base import GameResult
from gymmesh_resource.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Scoring:
    """`draw`: the reward of a draw. `progress`: the largest reward of an unsolved puzzle.
    `illegal`: the cost of each illegal move.
    """

    draw: float = 0.5
    progress: float = 0.0
    illegal: float = 0.0


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a game: its result if any, progress from 0.0 to 1.0, and the counted moves."""

    result: GameResult | None = None
    progress: float = 0.0
    moves: int = 0
    illegal: int = 0
    ended_by: str = ""


def worth(standing: Standing, scoring: Scoring) -> float:
    """The value, 0.0 to 1.0: 1 if won, else the share for progress or a draw, minus penalties."""
    if standing.result is GameResult.WON:
        value = 1.0
    else:
        value = scoring.progress * standing.progress
        if standing.result is GameResult.DRAWN:
            value = max(value, scoring.draw)
    return max(0.0, value - scoring.illegal * standing.illegal)


def judge(standing: Standing, scoring: Scoring) -> Verdict:
    """The verdict on the current state of a game, which may be unfinished."""
    return Verdict(
        worth(standing, scoring),
        components={
            "won": float(standing.result is GameResult.WON),
            "drawn": float(standing.result is GameResult.DRAWN),
            "progress": standing.progress,
        },
        evidence={
            "result": standing.result.value if standing.result else "unfinished",
            "ended_by": standing.ended_by,
            "moves": standing.moves,
            "illegal_moves": standing.illegal,
        },
        explanation=f"{standing.result.value if standing.result else 'unfinished'} after "
        f"{standing.moves} moves, {standing.illegal} illegal ones",
    )
