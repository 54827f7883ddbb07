"""A method's outcome, and the model calls that it may make meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from time import monotonic
from typing import Any

import pytest

from gymmesh_resource.model_access import UsageCounter, in_call
from gymmesh_resource.serving import Method
from gymmesh_resource.workers import Threads

LIMIT_S = 30.0


@pytest.fixture
async def threads() -> AsyncIterator[Threads]:
    made = Threads(1)
    yield made
    made.close()


def method_of(function: Callable[..., Any], threads: Threads, *, calls_models: bool) -> Method:
    return Method(function, LIMIT_S, environment="e", threads=threads, calls_models=calls_models)


async def answers(left: int, *, right: int = 2) -> int:
    return left + right


def blocks(left: int, *, right: int = 2) -> int:
    return left + right


async def fails(left: int, *, right: int = 2) -> int:
    raise LookupError(f"{left} {right}")


async def exits(left: int, *, right: int = 2) -> int:
    raise SystemExit(3)


async def tells_its_call() -> tuple[float, UsageCounter | None] | None:
    call = in_call.get()
    return None if call is None else (call.deadline, call.usage_counter)


@pytest.mark.parametrize("calls_models", [False, True])
@pytest.mark.parametrize(("named", "wanted"), [({}, 3), ({"right": 5}, 6)])
@pytest.mark.parametrize("function", [answers, blocks])
async def test_it_is_called_with_its_arguments(
    threads: Threads,
    function: Callable[..., Any],
    named: dict[str, int],
    wanted: int,
    calls_models: bool,
) -> None:
    method = method_of(function, threads, calls_models=calls_models)
    assert await method.call((1,), named, deadline=5.0, usage=UsageCounter()) == wanted
    assert in_call.get() is None


@pytest.mark.parametrize(("function", "kind"), [(fails, LookupError), (exits, RuntimeError)])
async def test_what_it_raises_passes_and_an_exit_is_no_exit(
    threads: Threads, function: Callable[..., Any], kind: type[Exception]
) -> None:
    method = method_of(function, threads, calls_models=True)
    with pytest.raises(kind):
        await method.call((1,))
    assert in_call.get() is None


async def test_models_are_asked_within_its_limit_and_its_callers(threads: Threads) -> None:
    counter = UsageCounter()
    method = method_of(tells_its_call, threads, calls_models=True)
    assert await method.call((), deadline=5.0, usage=counter) == (5.0, counter)
    before = monotonic()
    deadline, counted = await method.call(())
    assert before + LIMIT_S <= deadline <= monotonic() + LIMIT_S
    assert counted is None
    assert await method_of(tells_its_call, threads, calls_models=False).call(()) is None
