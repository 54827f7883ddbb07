"""Connect four: pieces are dropped into columns, and four in a line win.

The board is two whole numbers with a bit for each cell, column by column, with an empty row on
top of each, so that shifts find lines without running over an edge.
"""

from __future__ import annotations

from gymmesh_resource.environments.game.base import Game, GameResult, IllegalMove, integers

COLUMNS, ROWS = 7, 6
_STEP = ROWS + 1
_MIDDLE_FIRST = (3, 2, 4, 1, 5, 0, 6)
# How often the opponent moves by chance, and how many moves it looks ahead, by level.
_LEVELS = {1: (1.0, 0), 2: (0.25, 2), 3: (0.0, 4)}


def has_four(pieces: int) -> bool:
    """Whether four of these pieces are in a line."""
    for step in (1, _STEP, _STEP - 1, _STEP + 1):
        pairs = pieces & (pieces >> step)
        if pairs & (pairs >> (2 * step)):
            return True
    return False


class ConnectFour(Game):
    """The model plays X, its opponent O."""

    rules = (
        "Connect four. You are X, your opponent is O; a piece falls to the lowest free cell of "
        "its column, and four in a line win: across, down or diagonal. "
        "A move is a column's number from 1 to 7."
    )
    example = "4"

    def start(self) -> str:
        self._loose, self._depth = _LEVELS[self.level]
        self._mine, self._theirs = 0, 0  # of the model, of the opponent
        self._height = [0] * COLUMNS
        return "" if self.model_begins else self._reply()

    def play(self, move: str) -> str:
        (column,) = integers(move, 1, "the number of one column")
        if not 1 <= column <= COLUMNS:
            raise IllegalMove(f"there is no column {column}")
        if self._height[column - 1] == ROWS:
            raise IllegalMove(f"column {column} is full")
        self._mine |= self._drop(column - 1)
        if has_four(self._mine):
            self.result = GameResult.WON
            return "You win."
        return self._drawn("") or self._reply()

    def board(self) -> str:
        lines = ["".join(str(column) for column in range(1, COLUMNS + 1))]
        for row in range(ROWS - 1, -1, -1):
            bits = [1 << (column * _STEP + row) for column in range(COLUMNS)]
            lines.append(
                "".join("X" if self._mine & b else "O" if self._theirs & b else "." for b in bits)
            )
        return "\n".join(lines)

    def legal(self) -> str:
        return ", ".join(str(column + 1) for column in self._open())

    def _open(self) -> list[int]:
        return [column for column in range(COLUMNS) if self._height[column] < ROWS]

    def _drop(self, column: int) -> int:
        bit = 1 << (column * _STEP + self._height[column])
        self._height[column] += 1
        return bit

    def _reply(self) -> str:
        column = self.opponents_choice(
            self._open(),
            lambda column: -self._value_after(column, self._theirs, self._mine, self._depth),
            self._loose,
        )
        self._theirs |= self._drop(column)
        said = f"O plays {column + 1}."
        if has_four(self._theirs):
            self.result = GameResult.LOST
            return f"{said} The opponent wins."
        return self._drawn(said + " ") or said

    def _drawn(self, said: str) -> str:
        if self._open():
            return ""
        self.result = GameResult.DRAWN
        return f"{said}A draw."

    def _value_after(self, column: int, mover: int, other: int, depth: int) -> int:
        """What the position is worth to the other player after `mover` dropped a piece."""
        mover |= self._drop(column)
        try:
            # A win soon is worth more than one later, so that the opponent does not dally.
            return -1 - depth if has_four(mover) else self._search(other, mover, depth - 1)
        finally:
            self._height[column] -= 1

    def _search(self, mover: int, other: int, depth: int, low: int = -99, high: int = 99) -> int:
        """Negamax with alpha-beta bounds: the position's worth to `mover`, whose move it is."""
        if depth <= 0:
            return 0
        best = None
        for column in _MIDDLE_FIRST:
            if self._height[column] == ROWS:
                continue
            pieces = mover | self._drop(column)
            if has_four(pieces):
                worth = 1 + depth
            else:
                worth = -self._search(other, pieces, depth - 1, -high, -low)
            self._height[column] -= 1
            best = worth if best is None else max(best, worth)
            low = max(low, best)
            if low >= high:
                break
        return best or 0
