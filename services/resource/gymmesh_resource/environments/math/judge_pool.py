"""Judging mathematical answers without ever blocking the event loop.

Invariant: every response has a verdict. One that cannot be compared within its bounds is worth
0.0, provided that the expected answer alone can be. A `PoolError` is the machine's or the pool's.
"""

from __future__ import annotations

from typing import Self

from gymmesh_resource.workers import AnswerTooMuch, ProcessPool, work_on_answer

from .verdict import ExpectedAnswerError, MathScore, check_expected, judge, unjudged, warm_up

__all__ = ["JudgePool"]

# Address space for the library, SymPy and a large computation; beyond this it is runaway.
MEMORY_LIMIT = 2 * 1024**3


class JudgePool:
    """`verdict.judge` in worker processes that end when an answer takes too much.

    `workers`: processes at most (each takes about 0.1 GB and half a second to start).
    `timeout`: seconds of processor time for one judgement. Most take milliseconds, but some sound
    ones take six seconds (two forms of an expression with powers of 2,016).
    """

    def __init__(self, *, workers: int = 2, timeout: float = 10.0) -> None:
        self._timeout = timeout
        self._pool = ProcessPool(workers=workers, warm_up=warm_up, memory_limit=MEMORY_LIMIT)

    async def judge(self, expected_answer: str, response_text: str) -> MathScore:
        """The verdict; raises `ExpectedAnswerError` (mend the task) or `PoolError`."""
        try:
            return await work_on_answer(
                self._pool, judge, expected_answer, response_text, cpu_s=self._timeout
            )
        except AnswerTooMuch as error:
            failure = str(error)
        try:
            await work_on_answer(self._pool, check_expected, expected_answer, cpu_s=self._timeout)
        except AnswerTooMuch as error:
            raise ExpectedAnswerError(f"Comparing it with a number, {error}.") from None
        return unjudged(expected_answer, response_text, failure)

    async def warm(self) -> None:
        """Start all workers now rather than with the first judgements."""
        await self._pool.warm()

    async def aclose(self) -> None:
        """Kill the workers; judgements under way end with `PoolClosed`."""
        await self._pool.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
