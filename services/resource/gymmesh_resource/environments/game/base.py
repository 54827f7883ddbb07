"""The base class of games: a position that changes by moves until there is a result.

Invariant: a game depends only on its level, its seed and the moves. All random choices use the
game's own `Random`, and an illegal move changes nothing, its random state included.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from random import Random
from typing import ClassVar, TypeVar

T = TypeVar("T")

LEVELS = (1, 2, 3)
_INTEGERS = re.compile(r"[0-9]{1,3}(?:[ ,;]+[0-9]{1,3}){0,9}", re.ASCII)


class GameResult(Enum):
    """How a game ended, from the model's point of view."""

    WON = "won"
    DRAWN = "drawn"
    LOST = "lost"


class IllegalMove(ValueError):
    """A move against the rules; the text is the reason, for the model."""


class Game(ABC):
    """One game in progress.

    `rules`: a sentence or two for the model. `example`: a move as the model writes it. `max_moves`:
    number of the model's moves after which a game without a result is lost; 0: no limit, because
    the rules end the game.
    """

    rules: ClassVar[str]
    example: ClassVar[str]

    def __init__(self, level: int, chance: Random, *, model_begins: bool = True) -> None:
        """`level`: one of `LEVELS`. `model_begins`: only for games with an opponent."""
        self.level = level
        self.chance = chance
        self.model_begins = model_begins
        self.max_moves = 0
        self.result: GameResult | None = None

    def opponents_choice(self, moves: Sequence[T], worth: Callable[[T], int], careless: float) -> T:
        """A move of the opponent: any, as often as `careless` says, else one of those that are
        worth most to it.
        """
        if self.chance.random() >= careless:
            worths = [worth(move) for move in moves]
            best = max(worths)
            moves = [move for move, one in zip(moves, worths, strict=True) if one == best]
        return self.chance.choice(moves)

    @abstractmethod
    def start(self) -> str:
        """Set up the game. If the opponent begins, make its move and return one line about it."""

    @abstractmethod
    def play(self, move: str) -> str:
        """Make the model's move and the opponent's. Returns one line on what happened.

        `move`: lower case, single spaces, no surrounding marks. Raises `IllegalMove`.
        """

    @abstractmethod
    def board(self) -> str:
        """The position as the model sees it; empty if there is nothing to draw."""

    @abstractmethod
    def legal(self) -> str:
        """The legal moves in one short line."""

    def progress(self) -> float:
        """How far a puzzle is solved, 0.0 to 1.0. With an opponent: 1.0 if the model has won."""
        return 1.0 if self.result is GameResult.WON else 0.0


def integers(move: str, count: int, what: str) -> list[int]:
    """The move's whole numbers, exactly `count` of them. Raises `IllegalMove` that says `what`."""
    written = re.split(r"[ ,;]+", move) if _INTEGERS.fullmatch(move) else []
    if len(written) != count:
        raise IllegalMove(f"a move is {what}")
    return [int(part) for part in written]
