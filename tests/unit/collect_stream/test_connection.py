"""What is sent on a collector's connection, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from gymmesh.agent.v1 import agent_pb2
from gymmesh_client.collect_stream.connection import Connection, StreamLimits
from gymmesh_client.collect_stream.state import Key, StreamedAttempt

LIMITS = StreamLimits(flush_s=1000.0, acknowledge_s=0.01)
MANY = 1_000_000  # in flight


def asked(number: int, size: int = 10) -> StreamedAttempt:
    request = agent_pb2.RunRolloutRequest(rollout_id=f"r{number}", run_id="x" * size)
    return StreamedAttempt(key(number), request, 10.0, lambda event: None, print)


def key(number: int) -> Key:
    return f"r{number}", 1


class Reader:
    """Reads what is sent; hello is past."""

    def __init__(self, messages: AsyncIterator[agent_pb2.CollectRequest]) -> None:
        self._messages = messages

    @classmethod
    async def of(cls, connection: Connection) -> Reader:
        reader = cls(connection.requests(agent_pb2.CollectHello(stream_id="s")))
        assert (await reader.next()).hello.stream_id == "s"
        return reader

    @classmethod
    async def busy(cls, connection: Connection) -> Reader:
        """Something was just sent: what comes now waits for others."""
        reader = await cls.of(connection)
        connection.cancel(key(0))
        await reader.next()
        return reader

    async def next(self) -> agent_pb2.CollectRequest:
        return await asyncio.wait_for(anext(self._messages), 60)

    async def started(self) -> list[str]:
        return [start.request.rollout_id for start in (await self.next()).starts.starts]

    async def rest(self) -> list[agent_pb2.CollectRequest]:
        return [message async for message in self._messages]


def connected(now: float = 4.0) -> Connection:
    return Connection(LIMITS, lambda: now)


async def test_what_gathers_shares_messages() -> None:
    connection = connected()
    reader = await Reader.of(connection)
    for number in (1, 2):
        connection.start(asked(number), MANY)
    connection.cancel(key(3))
    connection.cancel(key(4))
    connection.grant(3)
    connection.grant(4)
    connection.acknowledge(8)
    connection.acknowledge(9)
    assert [one.rollout_id for one in (await reader.next()).cancels.attempts] == ["r3", "r4"]
    starts = (await reader.next()).starts.starts
    assert [(one.request.rollout_id, one.timeout_ms) for one in starts] == [
        ("r1", 6000),
        ("r2", 6000),
    ]
    assert (await reader.next()).credit.events == 7
    assert (await reader.next()).ack.cursor == 9


async def test_a_start_says_the_time_that_is_left() -> None:
    connection = connected(now=99.0)
    reader = await Reader.of(connection)
    connection.start(asked(1), MANY)
    assert (await reader.next()).starts.starts[0].timeout_ms == 1  # zero would mean no deadline


async def test_an_attempt_is_cancelled_once_it_was_sent_and_else_never_sent() -> None:
    connection = connected()
    reader = await Reader.of(connection)
    sent, unsent = asked(1), asked(2)
    connection.start(sent, MANY)
    assert not sent.sent
    assert await reader.started() == ["r1"]
    assert sent.sent
    connection.start(unsent, MANY)
    connection.cancel(unsent.key)
    connection.cancel(sent.key)
    connection.start(sent, MANY)  # once more
    assert [one.rollout_id for one in (await reader.next()).cancels.attempts] == ["r1"]
    assert await reader.started() == ["r1"]
    assert not unsent.sent


async def test_on_a_busy_connection_a_start_waits_unless_few_are_in_flight() -> None:
    connection = connected()
    reader = await Reader.busy(connection)
    connection.start(asked(2), MANY)
    waiting = asyncio.create_task(reader.started())
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    connection.start(asked(3), 1)
    assert await waiting == ["r2", "r3"]


async def test_many_starts_leave_at_once_in_messages_of_a_bounded_number() -> None:
    connection = connected()
    reader = await Reader.busy(connection)
    for number in range(1, 256):
        connection.start(asked(number), MANY)
    waiting = asyncio.create_task(reader.started())
    await asyncio.sleep(0)
    assert not waiting.done()
    for number in range(256, 601):
        connection.start(asked(number), MANY)
    counts = [len(await waiting), len(await reader.started()), len(await reader.started())]
    assert counts == [256, 256, 88]


async def test_messages_of_starts_have_a_bounded_size() -> None:
    connection = connected()
    reader = await Reader.busy(connection)
    for number, size in enumerate((100_000, 100_000, 100_000, 600_000, 10), 1):
        connection.start(asked(number, size), 1)
    messages = [await reader.started() for _ in range(4)]
    assert messages == [["r1", "r2"], ["r3"], ["r4"], ["r5"]]


async def test_acknowledgements_wait_for_others() -> None:
    now = [0.0]
    connection = Connection(StreamLimits(acknowledge_s=5.0), lambda: now[0])
    reader = await Reader.of(connection)
    connection.acknowledge(1)
    assert (await reader.next()).ack.cursor == 1
    connection.acknowledge(2)
    connection.cancel(key(1))
    assert (await reader.next()).HasField("cancels")
    connection.acknowledge(3)
    now[0] = 6.0
    connection.cancel(key(2))
    assert (await reader.next()).HasField("cancels")
    assert (await reader.next()).ack.cursor == 3


async def test_the_end_lets_go_what_is_there() -> None:
    connection = connected()
    reader = await Reader.busy(connection)
    connection.start(asked(1), MANY)
    connection.acknowledge(5)
    connection.end()
    starts, ack = await reader.rest()
    assert [one.request.rollout_id for one in starts.starts.starts] == ["r1"]
    assert ack.ack.cursor == 5
