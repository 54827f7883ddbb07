"""The sliding puzzle: tiles of a square are pushed into the gap until they are in order."""

from __future__ import annotations

from gymmesh_resource.environments.game.base import Game, GameResult, IllegalMove, integers

# Random moves that mix the tiles, by level; none takes back the one before it.
_MIXED = {1: 4, 2: 14, 3: 40}


class SlidingPuzzle(Game):
    """Three tiles by three, mixed by moves from the solved position, so it can be solved."""

    rules = (
        "Sliding puzzle. Put the tiles in order, row by row, with the gap (_) last. "
        "A move is the number of a tile next to the gap; it slides into the gap."
    )
    example = "5"

    def start(self) -> str:
        self._side = 3
        self._solved = [*range(1, self._side**2), 0]
        self._tiles = list(self._solved)
        self.max_moves = 3 * _MIXED[self.level] + 8
        last = 0
        while self._tiles == self._solved:
            for _ in range(_MIXED[self.level]):
                last = self.chance.choice([tile for tile in self._movable() if tile != last])
                self._slide(last)
        self._distance = self._away()
        return ""

    def play(self, move: str) -> str:
        (tile,) = integers(move, 1, "the number of one tile")
        if tile not in self._movable():
            raise IllegalMove(f"tile {tile} is not next to the gap")
        self._slide(tile)
        if self._tiles == self._solved:
            self.result = GameResult.WON
            return "Solved."
        return ""

    def board(self) -> str:
        rows = [self._tiles[at : at + self._side] for at in range(0, len(self._tiles), self._side)]
        return "\n".join(" ".join(str(tile or "_") for tile in row) for row in rows)

    def legal(self) -> str:
        return ", ".join(map(str, sorted(self._movable())))

    def progress(self) -> float:
        """How much nearer the tiles are to their places than at the start; never negative."""
        return max(0.0, 1.0 - self._away() / self._distance)

    def _movable(self) -> list[int]:
        gap = self._tiles.index(0)
        row, column = divmod(gap, self._side)
        near = [(row - 1, column), (row, column - 1), (row, column + 1), (row + 1, column)]
        return [
            self._tiles[r * self._side + c]
            for r, c in near
            if 0 <= r < self._side and 0 <= c < self._side
        ]

    def _slide(self, tile: int) -> None:
        gap, at = self._tiles.index(0), self._tiles.index(tile)
        self._tiles[gap], self._tiles[at] = tile, 0

    def _away(self) -> int:
        """The steps of all tiles to their places, as if nothing were in the way."""
        total = 0
        for at, tile in enumerate(self._tiles):
            if tile:
                row, column = divmod(at, self._side)
                to_row, to_column = divmod(tile - 1, self._side)
                total += abs(row - to_row) + abs(column - to_column)
        return total
