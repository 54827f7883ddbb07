"""When something leaves on a connection, and what."""

from __future__ import annotations

import asyncio

from gymmesh.agent.v1 import agent_pb2
from gymmesh_agent.collect.attempt import StreamedAttempt
from gymmesh_agent.collect.config import CollectConfig
from gymmesh_agent.collect.line import Line
from gymmesh_agent.collect.stream import CollectStream
from tests.support.collecting import CollectAgent, ask
from tests.unit.agent.mesh import until

LONG = 1000.0
LOAD = agent_pb2.CollectResponse(load=agent_pb2.CollectLoad(running=1))


async def due(line: Line) -> bool:
    return await asyncio.wait_for(line.called(), 60)


async def waits(line: Line) -> asyncio.Task[bool]:
    """Somebody waits, and goes on waiting."""
    waiting = asyncio.create_task(due(line))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    return waiting


async def test_on_a_quiet_line_it_leaves_at_once() -> None:
    line = Line(LONG)
    line.want()
    assert await due(line)
    assert not line.wanted


async def test_on_a_busy_line_it_waits_unless_something_is_in_more_of_a_hurry() -> None:
    line = Line(LONG)
    line.want()
    await due(line)
    line.want()
    assert line.wanted
    waiting = await waits(line)
    line.want(0.01)
    line.want()  # nothing that comes after brings it back
    assert await waiting


async def test_messages_leave_at_once_and_once() -> None:
    line = Line(LONG)
    line.want()
    await due(line)
    line.want()
    line.say(LOAD)
    assert await due(line)
    assert line.said() == [LOAD]
    assert line.said() == []
    await waits(line)


async def test_the_end_lets_go_what_is_there_and_takes_no_more() -> None:
    line = Line(LONG)
    line.want()
    await due(line)
    waiting = await waits(line)
    line.say(LOAD)
    line.end()
    line.say(LOAD)
    assert not await waiting
    assert line.said() == [LOAD]
    assert not await due(line)


async def test_events_leave_before_messages_and_on_the_last_connection_only() -> None:
    agent = CollectAgent()
    stream = CollectStream(agent, CollectConfig(), lambda changed: None)
    first, second = Line(LONG), Line(LONG)
    assert stream.resume(0, credit=3)
    stream.connect(first)
    stream.launch(StreamedAttempt(stream, ("ro-1", 1), ask(1)))
    await until(lambda: not agent.running)
    assert not stream.settled  # two events wait for credit
    first.say(LOAD)
    stream.connect(second)
    assert list(stream.leaving(first)) == [LOAD]
    second.say(LOAD)
    events, load = stream.leaving(second)
    assert isinstance(events, bytes)
    batch = agent_pb2.CollectResponse.FromString(events).events
    assert ([one.sequence for one in batch.events], batch.cursor) == ([1, 2, 3], 3)
    assert load == LOAD
