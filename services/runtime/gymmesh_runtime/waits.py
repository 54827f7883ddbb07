"""Waits: before something that failed is tried again, and for tasks to be over."""

from __future__ import annotations

import asyncio
import math
from typing import Any, Final

# A float holds more doublings, but no wait that anything here bounds is as long as these make it.
_MOST_DOUBLINGS: Final = 30


def doubled_s(first_s: float, times: int, longest_s: float = math.inf) -> float:
    """Seconds to wait after the failure number `times`, from 1: twice as many each time."""
    return min(first_s * 2.0 ** min(times - 1, _MOST_DOUBLINGS), longest_s)


async def cancel_and_wait(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancels tasks and waits until they are over; what they raise is not raised here."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
