"""Nim: players take stones from piles, and the one that takes the last wins."""

from __future__ import annotations

from functools import reduce
from operator import xor

from gymmesh_resource.environments.game.base import Game, GameResult, IllegalMove, integers

# Piles, the most stones of one, and how often the opponent moves by chance, by level.
_LEVELS = {1: (2, 4, 1.0), 2: (3, 5, 0.4), 3: (3, 7, 0.0)}


class Nim(Game):
    """Piles are drawn at random until perfect play wins for the model, whoever moves first."""

    rules = (
        "Nim. You and an opponent take turns; each takes one or more stones from one pile. "
        "Who takes the last stone wins. A move is the pile's number and how many to take."
    )
    example = "2 3"

    def start(self) -> str:
        count, most, self._loose = _LEVELS[self.level]
        while True:
            self._piles = [self.chance.randint(1, most) for _ in range(count)]
            # The player to move with all piles' XOR at 0 loses against perfect play.
            if (reduce(xor, self._piles) != 0) == self.model_begins and sum(self._piles) > 2:
                break
        return "" if self.model_begins else self._reply()

    def play(self, move: str) -> str:
        pile, stones = integers(move, 2, "the pile's number and how many stones, such as 2 3")
        if not 1 <= pile <= len(self._piles):
            raise IllegalMove(f"there is no pile {pile}")
        if not 1 <= stones <= self._piles[pile - 1]:
            raise IllegalMove(f"{stones} stones cannot be taken from pile {pile}")
        self._piles[pile - 1] -= stones
        if not any(self._piles):
            self.result = GameResult.WON
            return "You took the last stone and win."
        return self._reply()

    def board(self) -> str:
        return "\n".join(f"pile {at}: {stones}" for at, stones in enumerate(self._piles, 1))

    def legal(self) -> str:
        parts = [
            f"{at} 1" if stones == 1 else f"{at} 1 to {at} {stones}"
            for at, stones in enumerate(self._piles, 1)
            if stones
        ]
        return "; ".join(parts)

    def _reply(self) -> str:
        moves = [
            (at, taken) for at, stones in enumerate(self._piles) for taken in range(1, stones + 1)
        ]
        total = reduce(xor, self._piles)

        def leaves_nothing(move: tuple[int, int]) -> bool:
            at, taken = move
            return total ^ self._piles[at] ^ (self._piles[at] - taken) == 0

        pile, stones = self.opponents_choice(moves, leaves_nothing, self._loose)
        self._piles[pile] -= stones
        said = f"The opponent takes {stones} from pile {pile + 1}"
        if any(self._piles):
            return f"{said}."
        self.result = GameResult.LOST
        return f"{said}, the last, and wins."
