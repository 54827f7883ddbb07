"""Tells an answer that no process can work on in time from work that no answer would end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from gymmesh_resource.workers import WorkerCrashed, WorkerTimeout

T = TypeVar("T")


async def unless_always(
    work: Callable[[], Awaitable[T]], harmless: Callable[[], Awaitable[object]], problem: str
) -> T:
    """What the work on an answer gives, in a worker process.

    Where that process had to be ended, `harmless` does the same on an answer that asks for
    nothing. Raises `WorkerTimeout` or `WorkerCrashed` where that one comes to its end, so that the
    answer is to blame; else TimeoutError with the problem, or the pool's own error.
    """
    try:
        return await work()
    except (WorkerTimeout, WorkerCrashed):
        try:
            await harmless()
        except WorkerTimeout:
            raise TimeoutError(problem) from None
        raise
