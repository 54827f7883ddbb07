"""Tells an answer that asks too much of a worker process from work that always asks too much."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from gymmesh_resource.workers import AnswerTooMuch

T = TypeVar("T")


async def unless_always(
    work: Callable[[], Awaitable[T]], harmless: Callable[[], Awaitable[object]], problem: str
) -> T:
    """What the work on an answer gives; both are calls of `Environment.work_on_answer`.

    Where that used up its processor time or its memory, `harmless` does the same on an answer
    that asks for nothing, or on the task's own. Raises `AnswerTooMuch` where that one comes to
    its end, so that the answer is to blame; else TimeoutError with the problem. What the machine
    does to a process is neither, and raised as it is.
    """
    try:
        return await work()
    except AnswerTooMuch:
        try:
            await harmless()
        except AnswerTooMuch as error:
            raise TimeoutError(f"{problem}: {error}") from None
        raise
