"""The event loop that everything runs on, and the garbage collector beside it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

# A process that serves thousands of rollouts allocates fast, keeps most of it for a while and
# leaves hardly any circles. With Python's own thresholds (700, 10, 10) the collector looks at
# the same living objects again and again: a fifth of the CPU of a rollout, and with 50,000 still
# a tenth where 512 run in step. The first two numbers bound how many it looks at in one go, and
# so for how long the loop stands still.
_THRESHOLDS: Final = (200_000, 1, 1000)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end, on uvloop where that is installed.

    For programs whose process is ours: it also sets the garbage collector up for them.
    """
    collect_rarely()
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


def collect_rarely() -> None:
    """Have the garbage collector run less often, and leave alone what is loaded by now."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
