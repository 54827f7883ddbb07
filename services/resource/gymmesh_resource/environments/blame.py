"""Tells an answer that asks too much of a worker process from work that always asks too much."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from gymmesh_resource.workers import AnswerTooMuch

T = TypeVar("T")


async def unless_always(
    work: Callable[[], Awaitable[T]], harmless: Callable[[], Awaitable[object]], problem: str
) -> T:
    """The result of the work on an answer. Both arguments are calls of
    `Environment.work_on_answer`.

    If the work used up its processor time or memory, `harmless` does the same work on a trivial
    answer, or on the task's own. Raises `AnswerTooMuch` if `harmless` ends, since then the answer
    is the cause; otherwise TimeoutError with the problem. If the machine killed the process,
    neither applies, and that error is raised unchanged.
    """
    try:
        return await work()
    except AnswerTooMuch:
        try:
            await harmless()
        except AnswerTooMuch as error:
            raise TimeoutError(f"{problem}: {error}") from None
        raise
