"""The tests of the mux once more, on the event loop of services."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from types import ModuleType
from typing import Any

import pytest
import uvloop

from tests.unit.runtime import (
    test_mux_client,
    test_mux_frames,
    test_mux_outbox,
    test_mux_server,
)
from tests.unit.runtime.exchange_ends import calling_end, serving_end

_Test = Callable[..., Coroutine[Any, Any, None]]


def _in(module: ModuleType) -> list[_Test]:
    """Its asynchronous tests that need nothing but an end of the mux."""
    found = [one for name, one in vars(module).items() if name.startswith("test_")]
    return [
        one
        for one in found
        if inspect.iscoroutinefunction(one)
        and set(inspect.signature(one).parameters) <= {"served", "client"}
    ]


@pytest.mark.parametrize(
    "test",
    [
        *_in(test_mux_outbox),
        *_in(test_mux_frames),
        *_in(test_mux_server),
        *_in(test_mux_client),
    ],
    ids=lambda test: test.__name__.removeprefix("test_"),
)
def test_on_uvloop(test: _Test) -> None:
    async def run() -> None:
        async with AsyncExitStack() as stack:
            needs: dict[str, Any] = {}
            if "served" in inspect.signature(test).parameters:
                needs["served"] = await stack.enter_async_context(serving_end())
            if "client" in inspect.signature(test).parameters:
                needs["client"] = await stack.enter_async_context(calling_end())
            await test(**needs)

    uvloop.run(run())
