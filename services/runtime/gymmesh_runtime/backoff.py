"""How long to wait before something that failed is tried again."""

from __future__ import annotations

import math
from typing import Final

# A float holds more doublings, but no wait that anything here bounds is as long as these make it.
_MOST_DOUBLINGS: Final = 30


def doubled_s(first_s: float, times: int, longest_s: float = math.inf) -> float:
    """Seconds to wait after the failure number `times`, from 1: twice as many each time."""
    return min(first_s * 2.0 ** min(times - 1, _MOST_DOUBLINGS), longest_s)
