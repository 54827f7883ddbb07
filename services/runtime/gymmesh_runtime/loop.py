"""The event loop that everything runs on, and the garbage collector beside it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from gymmesh_runtime.turns import patient_turns

T = TypeVar("T")

# A process that serves thousands of rollouts allocates fast, keeps most of it for a while and
# leaves hardly any circles. With Python's own thresholds (700, 10, 10) the collector looks at
# the same living objects again and again: a fifth of the CPU of a rollout. One look at 100,000
# new objects holds the loop for some 30 ms. The second look, at all that outlived the first, is
# put off, since it would hold it for half a second while 10,000 rollouts start; later most of
# these objects are gone, and it costs little.
_THRESHOLDS: Final = (100_000, 30, 1000)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end, on uvloop where that is installed.

    For programs whose process is ours: it also sets the garbage collector up for them, and lets
    other processes finish their turn.
    """
    collect_rarely()
    with patient_turns():
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
