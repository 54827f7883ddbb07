"""Means of finite numbers whose sums may exceed what a float can hold. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

# A power of two: multiplying by it rounds nothing above 1e-288, and no sum can overflow.
SCALE: Final = 2.0**-64
"""Multiply numbers by it before adding them up, and divide their mean by it."""


def mean_of(counts: Iterable[tuple[float, int]]) -> float | None:
    """The mean of finite numbers, each with how often it came; finite. None without a number."""
    known = [(value, count) for value, count in counts if count]
    if not known:
        return None
    scaled = math.fsum(value * SCALE * count for value, count in known)
    mean = scaled / sum(count for _, count in known) / SCALE
    least, greatest = min(known)[0], max(known)[0]
    return min(max(mean, least), greatest)  # rounding may leave the range
