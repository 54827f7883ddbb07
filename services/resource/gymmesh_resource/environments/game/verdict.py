"""What a game is worth, at its end and on the way. Pure.

Invariant: the rewards of the turns, each the difference between what the game is worth after
and before it, add up to the verdict's reward.
"""

from __future__ import annotations

from dataclasses import dataclass

from gymmesh_resource.environments.game.base import GameResult
from gymmesh_resource.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Scoring:
    """`draw`: the reward of a draw. `progress`: the most that an unsolved puzzle can bring.
    `illegal`: what each illegal move costs.
    """

    draw: float = 0.5
    progress: float = 0.0
    illegal: float = 0.0


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a game stands: its result if any, progress of 0.0 to 1.0, and the moves counted."""

    result: GameResult | None = None
    progress: float = 0.0
    moves: int = 0
    illegal: int = 0
    ended_by: str = ""


def worth(standing: Standing, scoring: Scoring) -> float:
    """From 0.0 to 1.0: won is 1, lost or unfinished what the progress brings, less penalties."""
    if standing.result is GameResult.WON:
        value = 1.0
    else:
        value = scoring.progress * standing.progress
        if standing.result is GameResult.DRAWN:
            value = max(value, scoring.draw)
    return max(0.0, value - scoring.illegal * standing.illegal)


def judge(standing: Standing, scoring: Scoring) -> Verdict:
    """The verdict on a game as it stands, which may be unfinished."""
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
