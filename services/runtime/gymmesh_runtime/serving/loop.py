"""The event loop that everything runs on, and the garbage collector beside it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from gymmesh_runtime.serving.scheduling import batch_scheduling

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

    For programs whose process is ours: meanwhile the garbage collector runs less often, and other
    processes finish their turn.
    """
    with _collecting_rarely(), batch_scheduling():
        try:
            import uvloop
        except ImportError:
            return asyncio.run(main)
        return uvloop.run(main)


@contextmanager
def _collecting_rarely() -> Iterator[None]:
    """Inside, the garbage collector runs less often and leaves alone what is loaded by now.

    All is taken back at the end: what stays frozen is not released when the interpreter ends, and
    extension modules then report everything of theirs as leaked (nanobind does, in DuckDB).
    """
    thresholds, frozen = gc.get_threshold(), gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if not frozen:  # else it would undo somebody else's freezing as well
            gc.unfreeze()
