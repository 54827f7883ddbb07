"""Waiting for a slot does not use up the time that a method may take, and is bounded itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh_resource.errors import TookTooLong
from gymmesh_resource.serving import Method
from gymmesh_resource.workers import Slots, Threads
from gymmesh_resource.workers import slots as slots_module
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.timers import limit_paused

LIMIT_S = 2.0


async def within(
    function: Callable[[], Awaitable[Any]], limit_s: float, deadline: float | None = None
) -> Any:
    method = Method(function, limit_s, environment="e", threads=Threads(1))
    return await method.call(deadline=deadline)


async def test_a_wait_longer_than_the_limit_does_not_count() -> None:
    async def method() -> str:
        await asyncio.sleep(0)  # the limit is set from here on
        with limit_paused():
            await asyncio.sleep(LIMIT_S * 1.5)
        return "done"

    assert await within(method, LIMIT_S) == "done"


async def test_nor_does_one_that_begins_before_anything_else() -> None:
    async def method() -> str:
        with limit_paused():
            await asyncio.sleep(LIMIT_S * 1.5)
        return "done"

    assert await within(method, LIMIT_S) == "done"


async def test_after_the_wait_the_limit_holds_as_before() -> None:
    async def method() -> None:
        with limit_paused():
            await asyncio.sleep(0.01)
        await asyncio.Event().wait()

    with pytest.raises(TookTooLong):
        await within(method, 0.2)


async def test_two_waits_at_a_time_end_with_the_later_one() -> None:
    async def waits(seconds: float) -> None:
        with limit_paused():
            await asyncio.sleep(seconds)

    async def method() -> None:
        await asyncio.gather(waits(0.01), waits(LIMIT_S * 1.5))

    await within(method, LIMIT_S)


async def test_a_place_that_does_not_come_free_is_a_full_queue() -> None:
    slots = Slots("sandboxes", 1, wait_s=0.01)
    async with slots.one():
        with pytest.raises(MeshError) as caught:
            async with slots.one():
                pass
    assert caught.value.reason == errors_pb2.ERROR_REASON_QUEUE_FULL
    assert caught.value.metadata == {"queue": "sandboxes", "limit": "1"}
    async with slots.one():  # the slot is free again
        pass


async def test_a_wait_ends_before_the_caller_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots_module, "_MARGIN_S", 59.5)
    slots = Slots("sandboxes", 1)

    async def method() -> None:
        async with slots.one():
            pass

    async with slots.one():
        with pytest.raises(MeshError) as caught:
            await within(method, 120.0, deadline=monotonic() + 60.0)
    assert caught.value.reason == errors_pb2.ERROR_REASON_QUEUE_FULL


async def test_who_has_all_slots_is_alone() -> None:
    slots = Slots("places", 3)
    inside = 0
    alone: list[int] = []

    async def one() -> None:
        nonlocal inside
        async with slots.one():
            inside += 1
            await asyncio.sleep(0)
            inside -= 1

    async def all_of_them() -> None:
        async with slots.all():
            await asyncio.sleep(0)
            alone.append(inside)

    # Several that gather all slots at a time do not wait for each other for ever.
    async with asyncio.timeout(30.0):
        await asyncio.gather(*(work() for _ in range(20) for work in (one, all_of_them)))
        async with slots.all():
            pass
    assert alone == [0] * 20


async def test_a_wait_for_all_slots_is_bounded_and_gives_back_what_it_had() -> None:
    slots = Slots("places", 2, wait_s=0.05)
    async with slots.one():
        with pytest.raises(MeshError) as caught:
            async with slots.all():
                pass
        assert caught.value.reason == errors_pb2.ERROR_REASON_QUEUE_FULL
        async with slots.one():
            pass
