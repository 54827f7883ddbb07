"""Intervals and tests that draw again: the bootstrap over tasks, and the sign-flip test.

Needs numpy, which the extra `profile` brings. The same seed gives the same figures, whatever the
order of the tasks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

Interval = tuple[float, float]
Column = tuple[Sequence[float], Sequence[float]]

_CELLS: Final = 4_000_000  # of a matrix of doubles at a time: 32 MB
# As far as a sum may be from another one and be the same, as a part of the sizes' sum.
_ROUNDING: Final = 1e-9
_DIGITS: Final = 40
# Additions to look at all sums: about two seconds.
_MOST_SUMS: Final = 1 << 21


def available() -> bool:
    """Whether numpy is there."""
    from importlib.util import find_spec

    return find_spec("numpy") is not None


def bootstrap(
    columns: Sequence[Column], *, resamples: int, seed: int, confidence: float = 0.95
) -> list[Interval | None]:
    """Percentile intervals of means over tasks (B. Efron, 1979): tasks are drawn with replacement.

    Tasks that are alike in all columns are drawn together, by a multinomial, which is the same
    distribution.

    `columns`: for each mean the tasks' sums and weights, as `estimators.ratio` takes them; all of
    one length.

    Returns:
        For each column an interval; None where fewer than two tasks have a weight.
    """
    import numpy as np

    if not columns or len(columns[0][0]) < 2:
        return [None] * len(columns)
    table = np.array([part for column in columns for part in column], dtype=float).T
    alike, times = np.unique(table, axis=0, return_counts=True)
    drawn: list[Any] = []
    for counts in _resamples(times, resamples, seed):
        sums = counts.astype(float) @ alike
        with np.errstate(invalid="ignore", divide="ignore"):
            drawn.append(sums[:, 0::2] / sums[:, 1::2])
    means = np.concatenate(drawn)
    found: list[Interval | None] = []
    for place, (_, weights) in enumerate(columns):
        one = means[:, place]
        one = one[~np.isnan(one)]
        enough = np.count_nonzero(weights) >= 2 and len(one)
        found.append(_interval(one, confidence) if enough else None)
    return found


def bootstrap_median(
    values: Sequence[float], *, resamples: int, seed: int, confidence: float = 0.95
) -> Interval | None:
    """The percentile interval of a median over tasks; None for fewer than two."""
    import numpy as np

    if len(values) < 2:
        return None
    alike, times = np.unique(np.array(values, dtype=float), return_counts=True)
    tasks, drawn = len(values), list[Any]()
    for counts in _resamples(times, resamples, seed):
        below = np.cumsum(counts, axis=1)
        lower = alike[(below <= (tasks - 1) // 2).sum(axis=1)]
        upper = alike[(below <= tasks // 2).sum(axis=1)]
        drawn.append((lower + upper) / 2)
    return _interval(np.concatenate(drawn), confidence)


def _resamples(times: Any, resamples: int, seed: int) -> Iterator[Any]:
    """Tasks drawn with replacement, a batch at a time: how often each kind was, of which there are
    so many.
    """
    import numpy as np

    tasks, random = int(times.sum()), np.random.default_rng(seed)
    for size in _batches(resamples, len(times)):
        yield random.multinomial(tasks, times / tasks, size=size)


def _interval(drawn: Any, confidence: float) -> Interval:
    import numpy as np

    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return float(low), float(high)


def sign_flip(differences: Sequence[float], *, resamples: int, seed: int) -> tuple[float, bool]:
    """The two-sided p value of a paired permutation test, and whether it is exact.

    If two runs were alike, each task's difference could as well have the other sign. The p value is
    the share of signs under which the sum is as far from 0 as it was. Differences of one size are
    flipped together: of n such ones k have the other sign in C(n, k) ways. Where this leaves few
    sums, as with a few rollouts of each task, all are looked at; else `resamples` are drawn, as
    (b + 1) / (m + 1) (B. Phipson and G. Smyth, 2010).
    """
    sizes = Counter(abs(one) for one in differences if one)
    if not sizes:
        return 1.0, True
    groups = sorted(sizes.items())
    whole = math.fsum(size * count for size, count in groups)
    far = abs(math.fsum(differences)) - _ROUNDING * whole
    sums = _all_sums(groups, whole)
    if sums is None:
        return _drawn(groups, far, resamples, seed), False
    share = math.fsum(chance for total, chance in sums.items() if abs(total) >= far)
    # Never 0, also where a number is too small for a float.
    return min(1.0, max(share, math.ulp(0.0))), True


def _all_sums(groups: list[tuple[float, int]], whole: float) -> dict[float, float] | None:
    """Each sum that some signs give, and its chance; None where these are too many.

    Sums that differ by rounding alone are one: they are kept to a part of `whole`.
    """
    digits = _DIGITS - math.frexp(whole)[1]
    sums, work = {0.0: 1.0}, 0
    for size, count in groups:
        work += len(sums) * (count + 1)
        if work > _MOST_SUMS:
            return None
        flips = [(size * (count - 2 * k), chance) for k, chance in _flips(count)]
        more: dict[float, float] = {}
        for total, chance in sums.items():
            for one, another in flips:
                key = _rounded(total + one, digits)
                more[key] = more.get(key, 0.0) + chance * another
        sums = more
    return sums


def _flips(count: int) -> list[tuple[int, float]]:
    """The chance that k of so many fair signs are flipped, C(count, k) / 2^count, for every k for
    which it is not too small for a float.
    """
    found, ways, whole = [], 1, 1 << count
    for k in range(count + 1):
        if chance := ways / whole:
            found.append((k, chance))
        ways = ways * (count - k) // (k + 1)
    return found


def _rounded(value: float, digits: int) -> float:
    """The value to so many binary digits after the point (before it, where negative)."""
    return math.ldexp(round(math.ldexp(value, digits)), -digits)


def _drawn(groups: list[tuple[float, int]], far: float, resamples: int, seed: int) -> float:
    import numpy as np

    sizes = np.array([size for size, _ in groups])
    counts = np.array([count for _, count in groups])
    random, beyond = np.random.default_rng(seed), 0
    for batch in _batches(resamples, len(groups)):
        flipped = random.binomial(counts, 0.5, size=(batch, len(groups)))
        beyond += int(np.count_nonzero(np.abs((counts - 2.0 * flipped) @ sizes) >= far))
    return (beyond + 1) / (resamples + 1)


def _batches(resamples: int, width: int) -> list[int]:
    most = max(1, _CELLS // width)
    whole, rest = divmod(resamples, most)
    return [most] * whole + ([rest] if rest else [])
