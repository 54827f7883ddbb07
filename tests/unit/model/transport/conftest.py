"""The event loops that the client must work on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

_BOUND_S = 240.0


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """Runs a coroutine on one of the event loops, within a bound."""

    def bounded(main: Awaitable[Any]) -> Any:
        async def within() -> Any:
            async with asyncio.timeout(_BOUND_S):
                return await main

        return request.param(within())

    return bounded
