"""What leaves on a collector's connection, and when."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator

from gymmesh.agent.v1 import agent_pb2
from gymmesh_client.collect_stream.book import Asked, Key
from gymmesh_client.collect_stream.link import Link

LONG = 1000.0


def asked(number: int, size: int = 10) -> Asked:
    request = agent_pb2.RunRolloutRequest(rollout_id=f"r{number}", run_id="x" * size)
    return Asked(key(number), request.SerializeToString(), 10.0, lambda event: None, print)


def key(number: int) -> Key:
    return f"r{number}", 1


class Reader:
    """Reads what leaves; hello is past."""

    def __init__(self, messages: AsyncIterator[agent_pb2.CollectRequest | bytes]) -> None:
        self._messages = messages

    @classmethod
    async def of(cls, link: Link) -> Reader:
        reader = cls(link.requests(agent_pb2.CollectHello(stream_id="s")))
        assert (await reader.next()).hello.stream_id == "s"
        return reader

    async def next(self) -> agent_pb2.CollectRequest:
        message = await asyncio.wait_for(anext(self._messages), 60)
        return (
            agent_pb2.CollectRequest.FromString(message) if isinstance(message, bytes) else message
        )

    async def started(self) -> list[str]:
        return [start.request.rollout_id for start in (await self.next()).starts.starts]

    async def rest(self) -> list[agent_pb2.CollectRequest]:
        rest = []
        try:
            while True:
                rest.append(await self.next())
        except StopAsyncIteration:
            return rest


async def test_what_stands_side_by_side_shares_a_message_and_nothing_overtakes() -> None:
    link = Link(LONG, lambda: 4.0)
    reader = await Reader.of(link)
    for number in (1, 2):
        link.start(asked(number))
    link.cancel(key(1))
    link.cancel(key(2))
    link.start(asked(1))
    link.grant(7)
    link.acknowledge(9)
    starts = (await reader.next()).starts.starts
    assert [(one.request.rollout_id, one.timeout_ms) for one in starts] == [
        ("r1", 6000),
        ("r2", 6000),
    ]
    assert [one.rollout_id for one in (await reader.next()).cancels.attempts] == ["r1", "r2"]
    assert await reader.started() == ["r1"]
    assert (await reader.next()).credit.events == 7
    assert (await reader.next()).ack.cursor == 9


async def test_on_a_busy_link_a_start_waits_unless_it_may_not() -> None:
    link = Link(LONG)
    reader = await Reader.of(link)
    link.start(asked(1), math.inf)
    assert await reader.started() == ["r1"]
    link.start(asked(2))
    waiting = asyncio.create_task(reader.started())
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    link.start(asked(3), 0.01)
    assert await waiting == ["r2", "r3"]
    link.start(asked(4))
    link.cancel(key(4))
    assert await reader.started() == ["r4"]


async def test_many_starts_leave_at_once_in_messages_of_a_bounded_number() -> None:
    link = Link(LONG)
    reader = await Reader.of(link)
    link.cancel(key(0))
    await reader.next()
    for number in range(255):
        link.start(asked(number))
    waiting = asyncio.create_task(reader.started())
    await asyncio.sleep(0)
    assert not waiting.done()
    for number in range(255, 600):
        link.start(asked(number))
    counts = [len(await waiting), len(await reader.started()), len(await reader.started())]
    assert counts == [256, 256, 88]


async def test_large_starts_leave_at_once_in_messages_of_a_bounded_size() -> None:
    link = Link(LONG)
    reader = await Reader.of(link)
    link.cancel(key(0))
    await reader.next()
    for number, size in enumerate((100_000, 100_000, 100_000, 600_000, 10)):
        link.start(asked(number, size))
    messages = [await reader.started() for _ in range(4)]
    assert messages == [["r0", "r1"], ["r2"], ["r3"], ["r4"]]


async def test_the_end_lets_go_what_is_there_and_takes_no_more() -> None:
    link = Link(LONG)
    reader = await Reader.of(link)
    link.cancel(key(0))
    await reader.next()
    link.start(asked(1))
    link.end()
    late = asked(2)
    link.start(late)
    assert late.sent
    rest = await reader.rest()
    assert [[one.request.rollout_id for one in message.starts.starts] for message in rest] == [
        ["r1"]
    ]
