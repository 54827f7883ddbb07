"""What a process calls over several links waits for company together."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.wire.batch import BatchLimits
from gymmesh_runtime.wire.mux.caller import Crowd
from gymmesh_runtime.wire.mux.frames import ANSWER
from gymmesh_runtime.wire.mux.link import Link
from tests.unit.runtime.link_ends import STREAM, UNARY, Hand, end_of, first_of
from tests.unit.runtime.probe import stream, unary

MANY = 10**9  # so many that a frame would wait for hours
ENDLESS = BatchLimits(delay_s=10_000.0)


def ask(link: Link, timeout: float = 20.0) -> asyncio.Task[Any]:
    return asyncio.create_task(link.caller.unary(UNARY, unary("ok"), timeout, {}))


@pytest.mark.parametrize(("elsewhere", "waits"), [(0, False), (MANY, True)])
async def test_calls_over_other_links_count(elsewhere: int, waits: bool) -> None:
    crowd, hand = Crowd(), Hand()
    crowd.calls = elsewhere
    async with end_of(hand, opener=True, batching=ENDLESS, crowd=crowd) as (link, _):
        calls = [ask(link)]
        await hand.get()  # the first finds a quiet link
        calls.append(ask(link))
        if waits:
            assert await hand.quiet()
        else:
            await hand.get()
    assert len(await asyncio.gather(*calls, return_exceptions=True)) == 2


async def test_a_call_is_in_the_crowd_until_it_ends_however_it_does() -> None:
    crowd = Crowd()
    async with AsyncExitStack() as stack:
        hands = [Hand(), Hand()]
        first, second = [
            (await stack.enter_async_context(end_of(hand, opener=True, crowd=crowd)))[0]
            for hand in hands
        ]
        answered, cancelled, overdue = ask(first), ask(second), ask(second, 0.05)
        reading = first_of(first.caller.stream(STREAM, stream("x"), 20.0, {}))
        for hand in (hands[0], hands[0], hands[1], hands[1]):
            await hand.get()
        assert crowd.calls == 4
        hands[0].send((ANSWER, 1, b""))
        await answered
        cancelled.cancel()
        with pytest.raises(MeshError):
            await overdue
        reading.cancel()
        await asyncio.gather(cancelled, reading, return_exceptions=True)
    assert crowd.calls == 0
