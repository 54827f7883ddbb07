"""Where an environment's methods run: bounded, and none stalls another."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gymmesh_resource.errors import TookTooLong
from gymmesh_resource.serving import Method
from gymmesh_resource.workers import Threads


class _Host:
    """Calls methods as the servicers do, in one set of threads."""

    def __init__(self) -> None:
        self.threads = Threads(2)

    async def call(self, function: Any, *args: Any, limit_s: float) -> Any:
        return await Method(function, limit_s, environment="e", threads=self.threads).call(args)


@pytest.fixture
async def host() -> AsyncIterator[_Host]:
    made = _Host()
    yield made
    made.threads.close()


async def at_once(value: int) -> int:
    return value


async def after_waits(value: int) -> int:
    total = 0
    for _ in range(3):
        await asyncio.sleep(0)
        total += value
    done = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(done.set_result, total)
    return await done  # type: ignore[no-any-return]


async def with_groups() -> list[int]:
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        tasks = [group.create_task(after_waits(number)) for number in range(3)]
    return [task.result() for task in tasks]


async def inner_timeout() -> str:
    try:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()
    except TimeoutError:
        return "inner"
    return "none"


async def failing(after: int) -> None:
    for _ in range(after):
        await asyncio.sleep(0)
    raise LookupError(str(after))


async def exiting() -> None:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("method", "args", "wanted"),
    [
        (at_once, (7,), 7),
        (after_waits, (7,), 21),
        (with_groups, (), [0, 3, 6]),
        (inner_timeout, (), "inner"),
        (lambda: "plain", (), "plain"),
        (lambda: at_once(5), (), 5),
    ],
)
async def test_results_whatever_a_method_waits_for(
    host: _Host, method: Any, args: tuple[int, ...], wanted: object
) -> None:
    assert await host.call(method, *args, limit_s=30) == wanted


@pytest.mark.parametrize("after", [0, 2])
async def test_exceptions_are_the_methods_own(host: _Host, after: int) -> None:
    with pytest.raises(LookupError, match=str(after)):
        await host.call(failing, after, limit_s=30)


async def test_an_exit_is_an_error_like_any_other(host: _Host) -> None:
    with pytest.raises(RuntimeError, match="SystemExit"):
        await host.call(exiting, limit_s=30)


async def test_a_method_that_waits_too_long_is_cancelled(host: _Host) -> None:
    ended: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # cleaning up may wait, too
            ended.append("cleaned")
            raise

    with pytest.raises(TookTooLong):
        await host.call(hang, limit_s=0.01)
    assert ended == ["cleaned"]


async def test_cancelling_the_caller_cancels_a_method_that_waits(host: _Host) -> None:
    ended: list[str] = []
    started = asyncio.Event()

    async def hang() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned")

    caller = asyncio.create_task(host.call(hang, limit_s=30))
    await started.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended == ["cleaned"]


async def test_two_blocking_seconds_delay_nobody_else(host: _Host) -> None:
    release = threading.Event()
    blocked = asyncio.create_task(host.call(release.wait, 10, limit_s=30))
    # Were the event loop blocked, none of these would come back before the release.
    for number in range(50):
        assert await host.call(at_once, number, limit_s=30) == number
        assert await host.call(time.monotonic, limit_s=30) > 0
    assert not blocked.done()
    release.set()
    assert await blocked is True
