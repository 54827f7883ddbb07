"""Going down as TRANSPORT.md wants it: new calls are refused, and what runs gets some time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, TypeVar

import grpc

from tests.conformance.minimal.status import fail

T = TypeVar("T")
_NO_MORE: Final = object()


class Draining:
    """The calls of one server. `held`: how much callers hold there over several calls."""

    def __init__(self, held: Callable[[], int] = lambda: 0) -> None:
        self._held = held
        self._running = 0
        self._none_runs = asyncio.Event()
        self._none_runs.set()
        self._refuses = False
        self._time_is_up = asyncio.Event()

    async def drain(self, grace_s: float) -> None:
        """Refuses new work, and ends what still runs after so many seconds."""
        self._refuses = True
        self._look()
        try:
            await asyncio.wait_for(self._none_runs.wait(), grace_s)
        except TimeoutError:
            self._time_is_up.set()
            await asyncio.wait([asyncio.ensure_future(self._none_runs.wait())], timeout=1.0)

    async def unary(self, call: Coroutine[Any, Any, T], context: Any, *, new: bool = True) -> T:
        """The call's result, unless the server goes down. `new`: of no session that is open."""
        if self._refuses and (new or self._time_is_up.is_set()):
            call.close()
            await _fail(context)
        self._begins()
        try:
            return await self._in_time(call, context)
        finally:
            self._ends()

    async def stream(self, call: AsyncIterator[T], context: Any) -> AsyncIterator[T]:
        """The call's responses, likewise."""
        if self._refuses:
            await _fail(context)
        self._begins()
        try:
            while True:
                response: Any = await self._in_time(_next(call), context)
                if response is _NO_MORE:
                    return
                yield response
        finally:
            self._ends()

    async def _in_time(self, call: Coroutine[Any, Any, T], context: Any) -> T:
        task = asyncio.ensure_future(call)
        end = asyncio.ensure_future(self._time_is_up.wait())
        try:
            await asyncio.wait([task, end], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await _fail(context)
            return task.result()
        finally:
            end.cancel()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _begins(self) -> None:
        self._running += 1
        self._none_runs.clear()

    def _ends(self) -> None:
        self._running -= 1
        self._look()

    def _look(self) -> None:
        if self._running or (self._refuses and self._held()):
            self._none_runs.clear()
        else:
            self._none_runs.set()


async def _next(call: Any) -> Any:
    return await anext(call, _NO_MORE)


async def _fail(context: Any) -> None:
    await fail(context, grpc.StatusCode.UNAVAILABLE, "DRAINING", "the server goes down")
