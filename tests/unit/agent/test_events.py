"""Events are numbered, end once, and a slow reader slows the sender."""

from __future__ import annotations

import asyncio

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.events import EventBounds, EventQueue, EventStream
from gymmesh_agent.loop import Completion
from gymmesh_runtime.errors import MeshError


def _annotation() -> rollout_pb2.RolloutEvent:
    return rollout_pb2.RolloutEvent(annotation=rollout_pb2.Annotation(key="k"), ignorable=True)


def _completed() -> rollout_pb2.RolloutEvent:
    return rollout_pb2.RolloutEvent(completed=rollout_pb2.Completed())


FINISHED = Completion(rollout_pb2.STOP_REASON_MODEL_FINISHED)


async def test_events_are_numbered_and_end_once() -> None:
    sent: list[rollout_pb2.RolloutEvent] = []
    stream = EventStream("r", 2, sent.append)
    await stream.emit(_annotation())
    stream.completed(FINISHED, None)
    with pytest.raises(RuntimeError, match="the rollout has ended"):
        await stream.emit(_annotation())
    assert [(e.rollout_id, e.attempt, e.sequence) for e in sent] == [("r", 2, 1), ("r", 2, 2)]
    assert 0 < sent[0].record_time_unix_nano <= sent[1].record_time_unix_nano
    assert stream.count == 2


async def test_a_queue_ends_when_it_is_closed_and_read() -> None:
    queue = EventQueue()
    assert queue.put(_completed()) is None
    queue.close()
    event = await queue.next()
    assert event is not None
    assert event.HasField("completed")
    assert await queue.next() is None


async def test_a_slow_reader_slows_the_sender() -> None:
    queue = EventQueue()
    stream = EventStream("r", 1, queue.put)
    emitted = 0

    async def send() -> None:
        nonlocal emitted
        for _ in range(1000):
            await stream.emit(_annotation())
            emitted += 1

    sender = asyncio.create_task(send())
    for _ in range(20):
        await asyncio.sleep(0)
    held = emitted
    assert held < 500
    for number in range(1, 601):
        event = await queue.next()
        assert event is not None
        assert event.sequence == number
    assert emitted > held
    # A reader that goes away lets the sender go.
    queue.close()
    await asyncio.wait_for(sender, 60)
    assert emitted == 1000


def test_a_rollout_that_fails_before_it_started_is_a_stream_all_the_same() -> None:
    sent: list[rollout_pb2.RolloutEvent] = []
    stream = EventStream("r", 1, sent.append)
    failure = rollout_pb2.Failure(component="tiny")
    started = rollout_pb2.RolloutEvent(started=rollout_pb2.Started(environment="tiny"))
    stream.failed(failure, None, lambda: started)
    assert [event.WhichOneof("event") for event in sent] == ["started", "failed"]
    assert sent[0].started.environment == "tiny"
    assert (sent[1].failed.failure, sent[1].failed.events) == (failure, 2)
    assert not sent[1].failed.HasField("counts")


@pytest.mark.parametrize(
    ("bounds", "limit", "within"),
    [(EventBounds(3, 10**9), "max_events", 3), (EventBounds(10**9, 120), "max_event_bytes", 5)],
)
async def test_an_attempt_has_bounds(bounds: EventBounds, limit: str, within: int) -> None:
    sent: list[rollout_pb2.RolloutEvent] = []
    stream = EventStream("r", 1, sent.append, bounds)
    for _ in range(within):
        await stream.emit(_annotation())
        stream.check()
    with pytest.raises(MeshError) as raised:
        await stream.emit(_annotation())
    assert raised.value.reason == errors_pb2.ERROR_REASON_ATTEMPT_TOO_LARGE
    assert raised.value.metadata["limit"] == limit
    with pytest.raises(MeshError):
        stream.check()
    stream.failed(rollout_pb2.Failure(), None, rollout_pb2.RolloutEvent)
    assert len(sent) == within + 2
    assert sent[-1].failed.events == within + 2


def test_the_default_bounds_admit_long_attempts() -> None:
    config = AgentConfig()
    assert (config.max_events, config.max_event_bytes) == (500_000, 256_000_000)
