"""The event loop of a process, and the garbage collector beside it."""

from __future__ import annotations

import asyncio
import gc
import logging
import sysconfig
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, TypeVar

from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.serving.process_limits import prepare_process

T = TypeVar("T")
_log = logging.getLogger("gymmesh.runtime")

_STANDARD_LIBRARY: Final = sysconfig.get_path("stdlib")
# What is cancelled closes its connections and sessions; services have drained before.
_CANCELLED_S: Final = 5.0

# With Python's own thresholds (700, 10, 10) the collector looks at the same living objects of
# thousands of rollouts again and again: a fifth of their CPU. One look at 100,000 new objects holds
# the loop for some 30 ms. The second look, at all that outlived the first, would hold it for half a
# second while 10,000 rollouts start; put off, it finds most of them gone.
_THRESHOLDS: Final = (100_000, 30, 1000)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end, on uvloop if it is installed.

    For programs whose process is ours, because the garbage collector runs less often meanwhile.
    """
    with _collecting_rarely():
        try:
            from uvloop import new_event_loop
        except ImportError:
            return run_bounded(main)
        return run_bounded(main, new_event_loop)


def run_bounded(
    main: Coroutine[Any, Any, T],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> T:
    """Like `asyncio.run`, but abandons and logs a task that does not end when it is cancelled.
    Raises ConfigError if the process's limits of files or memory are too low.

    Tasks run code of others (agents, tools). A task that catches its cancellation would otherwise
    keep the finished process alive for ever.
    """
    try:
        prepare_process()
    except ConfigError:
        main.close()
        raise
    runner = asyncio.Runner(loop_factory=loop_factory)
    try:
        return runner.run(main)
    finally:
        if _tasks_end(runner.get_loop()):
            runner.close()


def _tasks_end(loop: asyncio.AbstractEventLoop) -> bool:
    """Cancel all tasks, and give them some time; whether they have ended."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=_CANCELLED_S))
    stuck = [task for task in tasks if not task.done()]
    for task in stuck:
        _log.warning(
            "an asyncio task ignores its cancellation, so the process no longer waits for "
            "this task: %s",
            _place_of(task),
        )
    return not stuck


def _place_of(task: asyncio.Task[Any]) -> str:
    """Where a task waits: the innermost function of its coroutines that is not Python's own."""
    awaited: Any = task.get_coro()
    place = repr(awaited)
    while awaited is not None:
        frame: FrameType | None = getattr(awaited, "cr_frame", None)
        if frame is not None and not frame.f_code.co_filename.startswith(_STANDARD_LIBRARY):
            code = frame.f_code
            place = f"{code.co_qualname} at {code.co_filename}:{frame.f_lineno}"
        awaited = getattr(awaited, "cr_await", None)
    return place


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
