"""A method that never waits ends the same, awaited or called at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from gymmesh_resource.host import Host
from gymmesh_resource.method import Method
from gymmesh_resource.models import Ledger, in_call
from gymmesh_resource.threads import Threads


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    threads = Threads(1)
    yield Host("e", threads)
    threads.close()


async def answers(left: int, *, right: int = 2) -> int:
    return left + right


async def fails(left: int, *, right: int = 2) -> int:
    raise LookupError(f"{left} {right}")


async def exits(left: int, *, right: int = 2) -> int:
    raise SystemExit(3)


async def takes_nothing() -> None:
    return None


async def tells_its_call(left: int, *, right: int = 2) -> tuple[float, Ledger | None] | None:
    call = in_call.get()
    return None if call is None else (call.deadline, call.ledger)


async def _outcome(call: Callable[[], Awaitable[Any]]) -> tuple[Any, ...]:
    try:
        return ("answer", await call())
    except Exception as error:
        return (type(error), str(error), type(error.__cause__))


@pytest.mark.parametrize("asks_models", [False, True])
@pytest.mark.parametrize("named", [{}, {"right": 5}])
@pytest.mark.parametrize("function", [answers, fails, exits, takes_nothing, tells_its_call])
async def test_the_outcome_is_that_of_the_awaited_call(
    host: Host, function: Callable[..., Any], named: dict[str, int], asks_models: bool
) -> None:
    method = Method(host, function, 30.0, asks_models=asks_models)
    assert method.never_waits
    ledger = Ledger()

    async def at_once() -> Any:
        return method.call_at_once((1,), named, deadline=5.0, ledger=ledger)

    async def awaited() -> Any:
        return await method.call((1,), named, deadline=5.0, ledger=ledger)

    assert await _outcome(at_once) == await _outcome(awaited)
    assert in_call.get() is None
