"""The streams of an agent's collectors, over connections that end in different ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh_agent.collect_stream import server as server_module
from tests.support.collecting import CollectAgent, ask

Requests = asyncio.Queue[agent_pb2.CollectRequest | None]


def hello(last_cursor: int, stream_id: str = "one") -> agent_pb2.CollectRequest:
    said = agent_pb2.CollectHello(stream_id=stream_id, credit=100, last_cursor=last_cursor)
    return agent_pb2.CollectRequest(hello=said)


def start(number: int) -> agent_pb2.CollectRequest:
    starts = agent_pb2.CollectStarts(starts=[agent_pb2.CollectStart(request=ask(number))])
    return agent_pb2.CollectRequest(starts=starts)


def ack(cursor: int) -> agent_pb2.CollectRequest:
    return agent_pb2.CollectRequest(ack=agent_pb2.CollectAck(cursor=cursor))


class Talk:
    """One connection of a collector."""

    def __init__(self, agent: CollectAgent, *said: agent_pb2.CollectRequest) -> None:
        self._said: Requests = asyncio.Queue()
        self._heard = agent.collectors.serve(self._requests())
        self.say(*said)

    async def _requests(self) -> AsyncIterator[agent_pb2.CollectRequest]:
        while (one := await self._said.get()) is not None:
            yield one

    def say(self, *said: agent_pb2.CollectRequest) -> None:
        for one in said:
            self._said.put_nowait(one)

    async def welcome(self) -> bool:
        """Whether the stream goes on."""
        response = await anext(self._heard)
        return response.welcome.resumed

    async def rollout(self, number: int) -> int:
        """The cursor after the last event of a rollout."""
        async for response in self._heard:
            batch = response.events
            if any(one.HasField("completed") for one in batch.events):
                assert {one.rollout_id for one in batch.events} == {f"ro-{number}"}
                return batch.cursor
        raise AssertionError("the stream ended")

    async def end(self) -> None:
        """The requests end: the collector has said all, or its connection broke."""
        self._said.put_nowait(None)
        async for _ in self._heard:
            pass


async def finished(agent: CollectAgent, stream_id: str = "one") -> int:
    """A stream that has nothing more to do; gives the cursor after its last event."""
    talk = Talk(agent, hello(0, stream_id), start(1))
    assert await talk.welcome()
    cursor = await talk.rollout(1)
    talk.say(ack(cursor))
    await talk.end()
    assert not agent.collectors._collectors  # nothing of it is kept in the way of others
    return cursor


async def test_a_connection_that_breaks_when_all_is_done_loses_nothing() -> None:
    """gRPC ends the requests of a broken connection as those of one that has said all.

    The collector may have asked for more, which did not arrive any more.
    """
    agent = CollectAgent()
    cursor = await finished(agent)
    talk = Talk(agent, hello(cursor), start(2))
    assert await talk.welcome(), "the stream goes on"
    assert await talk.rollout(2) == cursor + 5
    await talk.end()


@pytest.mark.parametrize("off", [-1, 1])
async def test_a_stream_that_was_elsewhere_is_lost(off: int) -> None:
    agent = CollectAgent()
    cursor = await finished(agent)
    talk = Talk(agent, hello(cursor + off))
    assert not await talk.welcome()
    await talk.end()


async def test_of_streams_that_are_done_a_bounded_number_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "_MAX_COLLECTORS", 2)
    agent = CollectAgent()
    cursors = {one: await finished(agent, one) for one in ("first", "second", "third")}
    assert len(agent.collectors._finished) == 2
    for name, resumed in (("first", False), ("third", True)):
        talk = Talk(agent, hello(cursors[name], name))
        assert await talk.welcome() == resumed
        await talk.end()
