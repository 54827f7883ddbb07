"""Tic-tac-toe on three by three cells."""

from __future__ import annotations

from functools import lru_cache

from gymmesh_resource.environments.game.base import Game, GameResult, IllegalMove, integers

# How often the opponent moves by chance, by level.
_LOOSE = {1: 1.0, 2: 0.4, 3: 0.0}
_LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
_EMPTY = "."


def _winner(cells: str) -> str | None:
    for a, b, c in _LINES:
        if cells[a] != _EMPTY and cells[a] == cells[b] == cells[c]:
            return cells[a]
    return None


def _free(cells: str) -> list[int]:
    return [at for at, cell in enumerate(cells) if cell == _EMPTY]


def _with(cells: str, at: int, mark: str) -> str:
    return cells[:at] + mark + cells[at + 1 :]


@lru_cache(maxsize=8192)  # there are 5,478 positions
def value(cells: str, mark: str) -> int:
    """The result of perfect play for `mark`, who moves next: 1, 0 or -1."""
    if _winner(cells) is not None:
        return -1
    free = _free(cells)
    if not free:
        return 0
    other = "o" if mark == "x" else "x"
    return max(-value(_with(cells, at, mark), other) for at in free)


class TicTacToe(Game):
    """The model plays X; cells are numbered from 1, and a free one shows its number."""

    rules = (
        "Tic-tac-toe. You are X, your opponent is O; three in a line win. "
        "A move is the number of a free cell."
    )
    example = "5"

    def start(self) -> str:
        self._cells = _EMPTY * 9
        return "" if self.model_begins else self._reply()

    def play(self, move: str) -> str:
        (cell,) = integers(move, 1, "the number of one cell")
        if not 1 <= cell <= 9:
            raise IllegalMove(f"there is no cell {cell}")
        if self._cells[cell - 1] != _EMPTY:
            raise IllegalMove(f"cell {cell} is taken")
        self._cells = _with(self._cells, cell - 1, "x")
        return self._ended("") or self._reply()

    def board(self) -> str:
        shown = [str(at + 1) if cell == _EMPTY else cell.upper()
                 for at, cell in enumerate(self._cells)]  # fmt: skip
        return "\n".join(" ".join(shown[at : at + 3]) for at in (0, 3, 6))

    def legal(self) -> str:
        return ", ".join(str(at + 1) for at in _free(self._cells))

    def _reply(self) -> str:
        at = self.opponents_choice(
            _free(self._cells),
            lambda at: -value(_with(self._cells, at, "o"), "x"),
            _LOOSE[self.level],
        )
        self._cells = _with(self._cells, at, "o")
        said = f"O plays {at + 1}."
        return self._ended(said + " ") or said

    def _ended(self, said: str) -> str:
        winner = _winner(self._cells)
        if winner is not None:
            self.result = GameResult.WON if winner == "x" else GameResult.LOST
            return f"{said}{'You win' if winner == 'x' else 'The opponent wins'}."
        if not _free(self._cells):
            self.result = GameResult.DRAWN
            return f"{said}A draw."
        return ""
