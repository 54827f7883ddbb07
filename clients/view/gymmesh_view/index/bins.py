"""The bins of a histogram: equally wide, with round edges. Pure.

`clients/view/ui/src/bins.ts` does the same for a bundle, and draws either to scale.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Final

from gymmesh_view.rows import Json

MOST_BINS: Final = 24
EPSILON: Final = 1e-9
"""Fractions of a bin: a value this close below an edge counts as on the edge, as 0.3 / 0.05 is."""
_MAX: Final = sys.float_info.max
_ROUND: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_ROUND_WHOLE: Final = (1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Grid:
    """Where bins begin, how wide each is, and their number."""

    start: float
    width: float
    count: int

    def bins(self, filled: dict[int, tuple[int, float, float]]) -> list[Json]:
        """The bins in order: `from` and `to`, their edges; `count`, how many values each has;
        `least` and `most`, its smallest and largest value, which are None in an empty one.

        Where no bin has two different values, the bins are these values alone: `from`, `to`,
        `least` and `most` are equal.

        Args:
            filled: count, smallest and largest value of each bin that has values, by its number.
        """
        if all(least == most for _, least, most in filled.values()):
            alone = (filled[number] for number in sorted(filled))
            return [_bin(one[1], one[2], one) for one in alone]
        return [
            _bin(self.edge(number), self.edge(number + 1), filled.get(number))
            for number in range(self.count)
        ]

    def edge(self, number: int) -> float:
        """Where a bin begins; a finite number."""
        return max(-_MAX, min(self.start + number * self.width, _MAX))


def grid_of(low: float, high: float, *, whole: bool) -> Grid:
    """At most about 24 bins over the values from `low` to `high`.

    Args:
        whole: whether all values are integers, of which each bin then has the same number.
    """
    least = high / MOST_BINS - low / MOST_BINS  # the difference itself may be infinite
    if whole:
        least = max(1.0, least)
    if not least:
        return Grid(low, 1.0, 1)
    scale = 10.0 ** math.floor(math.log10(least))
    steps = _ROUND_WHOLE if whole else _ROUND
    width = next((one * scale for one in steps if one * scale >= least * (1 - EPSILON)), scale * 10)
    if not (width and math.isfinite(low / width) and math.isfinite(high / width)):
        return Grid(low, least, MOST_BINS)
    start = math.floor(low / width + EPSILON) * width
    if not math.isfinite(start):
        return Grid(low, least, MOST_BINS)
    last = high / width - start / width  # their difference may be infinite, too
    count = math.floor(last + EPSILON) + 1 if whole else math.ceil(last - EPSILON)
    return Grid(start, width, max(1, min(count, MOST_BINS + 2)))


def _bin(start: float, end: float, filled: tuple[int, float, float] | None) -> Json:
    count, least, most = filled or (0, None, None)
    return {"from": start, "to": end, "count": count, "least": least, "most": most}
