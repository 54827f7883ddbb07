"""Intervals and tests that draw again: the bootstrap over tasks, and the sign-flip test.

Needs numpy, which the extra `profile` brings. The same seed gives the same figures, whatever the
order of the tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

Interval = tuple[float, float]
Column = tuple[Sequence[float], Sequence[float]]

_CELLS: Final = 4_000_000  # of a matrix of doubles at a time: 32 MB
_EXACT: Final = 16


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

    Args:
        columns: for each mean the tasks' sums and weights, as `estimators.ratio` takes them; all
            of one length.

    Returns:
        For each column an interval; None where fewer than two tasks have a weight.
    """
    import numpy as np

    if not columns or len(columns[0][0]) < 2:
        return [None] * len(columns)
    table = np.array([part for column in columns for part in column], dtype=float).T
    alike, times = np.unique(table, axis=0, return_counts=True)
    tasks, random = len(table), np.random.default_rng(seed)
    drawn: list[Any] = []
    for size in _batches(resamples, len(alike)):
        counts = random.multinomial(tasks, times / tasks, size=size).astype(float)
        sums = counts @ alike
        with np.errstate(invalid="ignore", divide="ignore"):
            drawn.append(sums[:, 0::2] / sums[:, 1::2])
    means, tail = np.concatenate(drawn), (1 - confidence) / 2
    found: list[Interval | None] = []
    for place, (_, weights) in enumerate(columns):
        one = means[:, place]
        one = one[~np.isnan(one)]
        if np.count_nonzero(weights) < 2 or not len(one):
            found.append(None)
        else:
            low, high = np.quantile(one, [tail, 1 - tail])
            found.append((float(low), float(high)))
    return found


def bootstrap_median(
    values: Sequence[float], *, resamples: int, seed: int, confidence: float = 0.95
) -> Interval | None:
    """The percentile interval of a median over tasks; None for fewer than two."""
    import numpy as np

    if len(values) < 2:
        return None
    alike, times = np.unique(np.array(values, dtype=float), return_counts=True)
    tasks, random = len(values), np.random.default_rng(seed)
    drawn: list[Any] = []
    for size in _batches(resamples, len(alike)):
        below = np.cumsum(random.multinomial(tasks, times / tasks, size=size), axis=1)
        lower = alike[(below <= (tasks - 1) // 2).sum(axis=1)]
        upper = alike[(below <= tasks // 2).sum(axis=1)]
        drawn.append((lower + upper) / 2)
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(drawn), [tail, 1 - tail])
    return float(low), float(high)


def sign_flip(differences: Sequence[float], *, resamples: int, seed: int) -> tuple[float, bool]:
    """The two-sided p value of a paired permutation test, and whether it is exact.

    If two runs were alike, each task's difference could as well have the other sign. The p value is
    the share of signs under which the sum is as far from 0 as it was: of all of them with at most
    16 differences other than 0, else of `resamples` draws, as (b + 1) / (m + 1) (B. Phipson and G.
    Smyth, 2010).
    """
    import numpy as np

    apart = np.sort(np.array([one for one in differences if one], dtype=float))
    if not len(apart):
        return 1.0, True
    far = abs(apart.sum()) - 1e-9 * np.abs(apart).sum()
    if len(apart) <= _EXACT:
        bits = (np.arange(2 ** len(apart))[:, None] >> np.arange(len(apart))) & 1
        return float(np.mean(np.abs((1 - 2.0 * bits) @ apart) >= far)), True
    random, beyond = np.random.default_rng(seed), 0
    for size in _batches(resamples, len(apart)):
        signs = random.integers(0, 2, size=(size, len(apart)), dtype=np.int8)
        beyond += int(np.count_nonzero(np.abs((1 - 2.0 * signs) @ apart) >= far))
    return (beyond + 1) / (resamples + 1), False


def _batches(resamples: int, width: int) -> list[int]:
    most = max(1, _CELLS // width)
    whole, rest = divmod(resamples, most)
    return [most] * whole + ([rest] if rest else [])
