"""When something is sent on a collector's connection, and what."""

from __future__ import annotations

import asyncio

from gymmesh.agent.v1 import agent_pb2
from gymmesh_agent.collect_stream.collector import CollectorClient, CollectorConnection
from gymmesh_agent.collect_stream.config import CollectConfig
from gymmesh_runtime.wire.pacing import SendTimer
from tests.support.collecting import CollectAgent, ask
from tests.unit.agent.mesh import until

LONG = 1000.0


async def due(timer: SendTimer) -> bool:
    return await asyncio.wait_for(timer.wait(), 60)


async def waits(timer: SendTimer) -> asyncio.Task[bool]:
    """The writer waits, and goes on waiting."""
    waiting = asyncio.create_task(due(timer))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    return waiting


async def test_on_a_quiet_stream_it_is_sent_at_once() -> None:
    timer = SendTimer(LONG)
    timer.send_within()
    assert await due(timer)
    await waits(timer)


async def test_on_a_busy_stream_it_waits_unless_something_is_in_more_of_a_hurry() -> None:
    timer = SendTimer(LONG)
    timer.send_within()
    await due(timer)
    timer.send_within()
    waiting = await waits(timer)
    timer.send_within(0.01)
    timer.send_within()  # nothing that comes after delays it
    assert await waiting


async def test_with_few_attempts_it_is_sent_at_once() -> None:
    timer = SendTimer(LONG)
    timer.send_within()
    await due(timer)
    timer.send_soon(1)
    assert await due(timer)
    timer.send_soon(1_000_000)
    await waits(timer)


async def test_what_is_sent_now_does_not_wait() -> None:
    timer = SendTimer(LONG)
    timer.send_within()
    await due(timer)
    timer.send_within()
    timer.wake()
    assert await due(timer)
    await waits(timer)


async def test_the_end_lets_go_what_is_there() -> None:
    timer = SendTimer(LONG)
    timer.send_within()
    await due(timer)
    waiting = await waits(timer)
    timer.close()
    assert not await waiting
    assert not await due(timer)


async def test_events_are_sent_before_replies_and_on_the_last_connection_only() -> None:
    agent = CollectAgent()
    collector = CollectorClient(agent, CollectConfig(), lambda changed: None)
    first, second = CollectorConnection(LONG), CollectorConnection(LONG)
    assert collector.stream.resume(0, credit=3)
    collector.connect(first)
    starts = agent_pb2.CollectStarts(starts=[agent_pb2.CollectStart(request=ask(1))])
    collector.receive(agent_pb2.CollectRequest(starts=starts))
    collector.start_next()
    await until(lambda: collector.queue.idle)
    assert not collector.stream.settled  # two events wait for credit
    collector.connect(second)
    assert first.closed
    collector.stream.report_load(0.0, target=7, capacity=9)
    assert list(collector.outgoing(first)) == []
    events, load = collector.outgoing(second)
    batch = events.events
    assert ([one.sequence for one in batch.events], batch.cursor) == ([1, 2, 3], 3)
    assert load == agent_pb2.CollectResponse(load=agent_pb2.CollectLoad(target=7))
    assert list(collector.outgoing(second)) == []


async def test_nothing_follows_the_end_of_an_attempt() -> None:
    """An agent that ignores its cancellation goes on sending events."""
    agent = CollectAgent(pause=lambda event: LONG if event.sequence == 3 else None)
    collector = CollectorClient(agent, CollectConfig(), lambda changed: None)
    assert collector.stream.resume(0, credit=100)
    starts = agent_pb2.CollectStarts(starts=[agent_pb2.CollectStart(request=ask(1))])
    collector.receive(agent_pb2.CollectRequest(starts=starts))
    collector.start_next()
    (attempt,) = collector.queue.running.values()
    await until(lambda: attempt.events == 2)
    refs = [agent_pb2.AttemptRef(rollout_id="ro-1")]
    cancels = agent_pb2.CollectCancels(attempts=refs)
    collector.receive(agent_pb2.CollectRequest(cancels=cancels))
    await until(lambda: collector.queue.idle)
    assert collector._take(attempt, agent._script(ask(1))[2]) is None
    collector.connect(CollectorConnection(LONG))
    assert collector.connection is not None
    (data,) = collector.outgoing(collector.connection)
    events = data.events.events
    assert [one.sequence for one in events] == [1, 2, 3]
    assert events[-1].WhichOneof("event") == "failed"
