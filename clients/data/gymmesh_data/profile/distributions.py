"""Distributions of many numbers, in bounded memory. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

_MOST_VALUES: Final = 4096
_MOST_BINS: Final = 64
_BASE: Final = 1.02
_LOG_BASE: Final = math.log(_BASE)


class Distribution:
    """Counts numbers. Up to 4,096 different numbers are counted exactly. More are counted by
    magnitude, so that quantiles are within 1 %. Count, sum, minimum and maximum are always exact.
    The result does not depend on the order of the numbers.
    """

    def __init__(self) -> None:
        self.count = 0
        self.total: float = 0
        self.squares: float = 0
        self.least = math.inf
        self.greatest = -math.inf
        self.exact = True
        self._counts: dict[float, int] = {}

    def add(self, value: float) -> None:
        """Count a number."""
        self.count += 1
        self.total += value
        self.squares += value * value
        if value < self.least:
            self.least = value
        if value > self.greatest:
            self.greatest = value
        key = value if self.exact else _magnitude(value)
        counts = self._counts
        counts[key] = counts.get(key, 0) + 1
        if self.exact and len(counts) > _MOST_VALUES:
            self.exact = False
            coarse: dict[float, int] = {}
            for one, times in counts.items():
                coarse[_magnitude(one)] = coarse.get(_magnitude(one), 0) + times
            self._counts = coarse

    @property
    def mean(self) -> float | None:
        """None without a number."""
        return self.total / self.count if self.count else None

    @property
    def deviation(self) -> float | None:
        """The standard deviation of the sample; None for fewer than two numbers."""
        if self.count < 2:
            return None
        spread = self.squares - self.total * self.total / self.count
        return math.sqrt(max(0.0, spread) / (self.count - 1))

    def items(self) -> list[tuple[float, int]]:
        """Values with their counts, the least first."""
        return sorted(self._counts.items())

    def quantile(self, part: float) -> float | None:
        """The value below which this share of the numbers lies. Between two numbers: their mean
        (numpy's `averaged_inverted_cdf`). None without a number.
        """
        if not self.count:
            return None
        rank = part * self.count
        low, high = math.ceil(rank) - 1, math.floor(rank)
        lower = self._at(max(0, low))
        upper = self._at(min(self.count - 1, high))
        return min(max((lower + upper) / 2, self.least), self.greatest)

    def _at(self, place: int) -> float:
        for value, times in self.items():
            if place < times:
                return value
            place -= times
        raise IndexError(place)

    def bars(self, most: int = 20) -> list[tuple[float, float, int]]:
        """A histogram as (from, to, count): one bar for each value, or `most` equal ranges."""
        items = self.items()
        if len(items) <= most:
            return [(value, value, times) for value, times in items]
        low, high = self.least, self.greatest
        width = (high - low) / most
        counts = [0] * most
        for value, times in items:
            counts[min(max(int((value - low) / width), 0), most - 1)] += times
        return [(low + at * width, low + (at + 1) * width, n) for at, n in enumerate(counts)]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        if not self.count:
            return {"count": 0}
        return {
            "count": self.count,
            "mean": self.mean,
            "deviation": self.deviation,
            "min": self.least,
            **{f"p{p}": self.quantile(p / 100) for p in (5, 25, 50, 75, 95, 99)},
            "max": self.greatest,
            "exact": self.exact,
            "histogram": [{"from": a, "to": b, "count": n} for a, b, n in self.bars()],
        }


def _magnitude(value: float) -> float:
    """The middle of the range of 2 % that a number is in."""
    if not value:
        return 0.0
    power = math.ceil(math.log(abs(value)) / _LOG_BASE)
    return math.copysign(2 * _BASE**power / (_BASE + 1), value)


@dataclass(slots=True)
class TimeBin:
    """Rollouts that started within a span of time."""

    rollouts: int = 0
    judged: int = 0
    reward: float = 0.0
    tokens: int = 0

    def take(self, other: TimeBin) -> None:
        """Add what another one has."""
        self.rollouts += other.rollouts
        self.judged += other.judged
        self.reward += other.reward
        self.tokens += other.tokens


@dataclass(slots=True)
class TimeSeries:
    """Rollouts by their start time, in at most 64 spans. When more spans are needed, all spans
    become twice as long. `width_s`: the length of a span in seconds.
    """

    width_s: int = 1
    _bins: dict[int, TimeBin] = field(default_factory=dict)

    def add(self, started_at: float, one: TimeBin) -> None:
        """Add a rollout that started at this time, in seconds since 1970."""
        self._bins.setdefault(int(started_at // self.width_s), TimeBin()).take(one)
        while len(self._bins) > _MOST_BINS:
            self.width_s *= 2
            coarse: dict[int, TimeBin] = {}
            for number, part in self._bins.items():
                coarse.setdefault(number // 2, TimeBin()).take(part)
            self._bins = coarse

    def __iter__(self) -> Iterator[tuple[int, TimeBin]]:
        """The beginning of each span, in seconds since 1970, and the span's rollouts; the earliest
        first.
        """
        for number in sorted(self._bins):
            yield number * self.width_s, self._bins[number]
