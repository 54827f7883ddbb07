"""A server that a case can tell to go down: its context is left while the case runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from gymmesh_conformance.runner import Stop

T = TypeVar("T")


@asynccontextmanager
async def stoppable(context: AbstractAsyncContextManager[T]) -> AsyncIterator[tuple[T, Stop]]:
    """What the context gives, and a function that begins to leave it."""
    entered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    leaves = asyncio.Event()

    async def hold() -> None:
        try:
            async with context as value:
                entered.set_result(value)
                await leaves.wait()
        except BaseException as error:
            if entered.done():
                raise
            entered.set_exception(error)

    async def stop() -> None:
        leaves.set()

    held = asyncio.create_task(hold())
    try:
        yield await entered, stop
    finally:
        leaves.set()
        await held
