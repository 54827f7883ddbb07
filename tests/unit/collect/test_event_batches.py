"""Batches whose events are bytes until they are read, and bytes that are none of that."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, cast

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.agent.v1 import agent_pb2
from gymmesh_client.collect_stream.state import ClientState, StreamedAttempt
from gymmesh_client.collect_stream.stream import CollectStream
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.wire.event_batches import EventBatch, pack_events, read_response
from tests.support.rollouts import completed, make_events, verdict

EVENTS = make_events("a", 1, verdict(1.0), completed())
RESPONSES = [
    agent_pb2.CollectResponse(),
    agent_pb2.CollectResponse(welcome=agent_pb2.CollectWelcome(resumed=True, capacity=3)),
    agent_pb2.CollectResponse(events=agent_pb2.CollectEvents()),
    agent_pb2.CollectResponse(events=agent_pb2.CollectEvents(cursor=2**63, events=EVENTS)),
    agent_pb2.CollectResponse(
        start_refused=agent_pb2.CollectStartRefused(
            attempts=[agent_pb2.AttemptRef(rollout_id="a", attempt=1)]
        )
    ),
    agent_pb2.CollectResponse(load=agent_pb2.CollectLoad(running=7)),
]
# A field of a later version, which nobody here knows.
UNKNOWN = b"\xa2\x06\x03new"


@given(st.lists(st.sampled_from(RESPONSES), max_size=3), st.booleans())
def test_a_response_is_the_same_either_way(
    parts: list[agent_pb2.CollectResponse], later: bool
) -> None:
    # Several in a row are one message to the wire: of a oneof, the last counts.
    data = b"".join(one.SerializeToString() for one in parts) + later * UNKNOWN
    response = agent_pb2.CollectResponse.FromString(data)
    read: Any = read_response(data)
    if response.HasField("events"):
        assert read.cursor == response.events.cursor
        events = [event.SerializeToString() for event in response.events.events]
        assert list(read.events) == events
    else:
        assert read == response


def test_a_batch_with_an_event_that_is_none_is_not_taken_in_part() -> None:
    came: list[object] = []
    state = ClientState()
    request = agent_pb2.RunRolloutRequest(rollout_id="a")
    state.add(StreamedAttempt(("a", 1), request, 10.0, came.append, print, sent=True))
    packed = [event.SerializeToString() for event in EVENTS]
    with pytest.raises(DecodeError):
        state.take(batch([*packed[:2], b"\xff"]))
    assert came == []
    assert state.received == 0
    state.take(batch(packed))
    assert came == EVENTS


def batch(events: list[bytes]) -> EventBatch:
    read: Any = read_response(pack_events(events, 3))
    return cast("EventBatch", read)


class Agent:
    """Says welcome, then what it was given."""

    def __init__(self, *said: bytes) -> None:
        self._said = said

    async def Collect(
        self,
        requests: AsyncIterator[agent_pb2.CollectRequest],
        *,
        timeout: float,
        read: Callable[[bytes], Any],
    ) -> AsyncGenerator[Any, None]:
        """One connection; only hello is read."""
        await anext(requests)
        for said in self._said:
            yield read(said)


@pytest.mark.parametrize(
    "said",
    [
        [b"\xff"],
        [RESPONSES[1].SerializeToString(), b"\xff"],
        [RESPONSES[1].SerializeToString(), b"\x22\x01\xff"],
        [
            RESPONSES[1].SerializeToString(),
            pack_events([b"\xff"], 1),
        ],
    ],
    ids=["welcome", "message", "load", "event"],
)
async def test_bytes_that_are_no_message_break_the_contract(said: list[bytes]) -> None:
    stream = CollectStream(Agent(*said), "the agent")
    request = agent_pb2.RunRolloutRequest(rollout_id="a", attempt=1)
    with pytest.raises(MeshError, match="CONTRACT_VIOLATED"):
        await stream.run(request, timeout_s=10.0, on_event=print)
    await stream.close()
