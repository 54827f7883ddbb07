"""One game of a session: counts moves, limits illegal moves, and writes replies to the model."""

from __future__ import annotations

from random import Random

from gymmesh_resource.environments.game.base import Game, GameResult, IllegalMove
from gymmesh_resource.environments.game.code_breaker import CodeBreaker
from gymmesh_resource.environments.game.connect_four import ConnectFour
from gymmesh_resource.environments.game.nim import Nim
from gymmesh_resource.environments.game.sliding_puzzle import SlidingPuzzle
from gymmesh_resource.environments.game.tic_tac_toe import TicTacToe
from gymmesh_resource.environments.game.verdict import Standing

GAMES: dict[str, type[Game]] = {
    "code_breaker": CodeBreaker,
    "connect_four": ConnectFour,
    "nim": Nim,
    "sliding_puzzle": SlidingPuzzle,
    "tic_tac_toe": TicTacToe,
}


class Match:
    """A game with its counters. `model_begins` None: chance decides."""

    def __init__(
        self, name: str, level: int, seed: int, *, model_begins: bool | None, max_illegal: int
    ) -> None:
        # Text as a seed, so that the games of one seed have nothing to do with one another.
        chance = Random(f"{name}/{level}/{seed}")
        drawn = chance.random() < 0.5
        begins = drawn if model_begins is None else model_begins
        self.game = GAMES[name](level, chance, model_begins=begins)
        self._max_illegal = max_illegal
        self._moves = 0
        self._illegal = 0
        self._ended_by = ""
        self._started = self.game.start()

    @property
    def over(self) -> bool:
        """Whether there is a result."""
        return self.game.result is not None

    @property
    def standing(self) -> Standing:
        """The current state of the game, for the verdict."""
        return Standing(
            result=self.game.result,
            progress=self.game.progress(),
            moves=self._moves,
            illegal=self._illegal,
            ended_by=self._ended_by,
        )

    def opening(self, how: str) -> str:
        """The rules, how to answer, and the position."""
        return _lines(self.game.rules, how, self._started, self.game.board(), "Your move.")

    def play(self, move: str | None, missing: str) -> str:
        """Make a move and return the reply. `move`: None if none was found, for which `missing` is
        the reason.
        """
        game = self.game
        try:
            if move is None:
                raise IllegalMove(missing)
            said = game.play(move)
        except IllegalMove as error:
            return self._refused(str(error))
        self._moves += 1
        if game.result is not None:
            self._ended_by = "the rules"
        elif game.max_moves and self._moves >= game.max_moves:
            game.result, self._ended_by = GameResult.LOST, "the move limit"
            said = _lines(said, "No moves are left: you lose.")
        return _lines(said, game.board(), "" if self.over else "Your move.")

    def _refused(self, why: str) -> str:
        self._illegal += 1
        left = self._max_illegal - self._illegal
        if left <= 0:
            self.game.result, self._ended_by = GameResult.LOST, "illegal moves"
            return f"Illegal move: {why}. It was one too many: you lose."
        return _lines(
            f"Illegal move: {why}. Legal: {self.game.legal()}. Illegal moves left: {left - 1}.",
            self.game.board(),
            "Your move.",
        )


def _lines(*parts: str) -> str:
    return "\n".join(part for part in parts if part)
