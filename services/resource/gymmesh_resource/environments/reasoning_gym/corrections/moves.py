"""Moves in games and buttons on locks. Pure but for the library's scorer."""

from __future__ import annotations

import re
from typing import Any, Final

from gymmesh_resource.environments.reasoning_gym.corrections.scorer import Scorer, capped

_SOKOBAN: Final = re.compile(r"[LRUD\s,]*", re.IGNORECASE)
_RUSH_HOUR: Final = re.compile(r"(?:[A-Z]{1,2}[+-]\d{1,3}[\s,;]*)+")
_BUTTONS: Final = re.compile(r"\s*[A-C](?:(?:\s|,|→|->|-|>)*[A-C])*\s*\.?\s*", re.IGNORECASE)
_DISK: Final = re.compile(
    r"(?:\d+[.):]\s*|[-*]\s*)?(?P<move>Move disk \d+ from Peg \d+ to Peg \d+)[.,;]?"
)


def sokoban(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer skips all but moves, so that a text may solve a puzzle by its letters."""
    if not _SOKOBAN.fullmatch(answer):
        return 0.0
    return float(scorer(answer="".join(re.findall(r"\w", answer)).upper(), entry=entry))


def rush_hour(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer skips all but moves, also words that deny the moves."""
    value = float(scorer(answer=answer, entry=entry))
    return value if _RUSH_HOUR.fullmatch(answer.strip()) else capped(value)


def quantum_lock(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer presses each letter A, B and C of a text."""
    return float(scorer(answer=answer, entry=entry)) if _BUTTONS.fullmatch(answer) else 0.0


def tower_of_hanoi(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer refuses moves that are numbered, or end with a mark, and skips what stands before
    them.
    """
    lines = (line.strip() for line in answer.splitlines())
    found = [(line, _DISK.fullmatch(line)) for line in lines if line]
    moves = "\n".join(move["move"] if move else line for line, move in found)
    value = float(scorer(answer=moves, entry=entry))
    return value if all(move for _, move in found) else capped(value)
