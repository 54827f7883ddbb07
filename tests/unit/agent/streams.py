"""The stream law and the conversation law, checked on a received stream.

Written from the header of rollout.proto alone, so that the agent's own code cannot agree with
itself by mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_responses import media_urls, with_images

Events = Sequence[rollout_pb2.RolloutEvent]
TERMINAL = ("completed", "failed")


def kinds(events: Events) -> list[str]:
    return [str(event.WhichOneof("event")) for event in events]


def check_law(events: Events, rollout_id: str, attempt: int) -> None:
    """Assert the stream law of one whole attempt."""
    names = kinds(events)
    assert names[0] == "started"
    assert names.count("started") == 1
    assert [name for name in names if name in TERMINAL] == [names[-1]]
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert {(event.rollout_id, event.attempt) for event in events} == {(rollout_id, attempt)}
    last: Any = getattr(events[-1], names[-1])
    assert last.events == len(events)
    assert all(event.record_time_unix_nano for event in events)
    if names[-1] == "completed":
        assert names.count("verified") == 1
    check_counts(events, last.counts)


def check_counts(events: Events, counts: rollout_pb2.Counts) -> None:
    names = kinds(events)
    assert counts.model_calls == names.count("model_call_completed")
    assert counts.tool_calls == names.count("tool_call_completed")
    assert counts.turns == names.count("turn_completed")


def conversation(events: Events, call_id: str) -> list[responses_pb2.Item]:
    """The conversation of a call, as the header of rollout.proto defines it."""
    model_call = next(one for one in model_calls(events) if one.call_id == call_id)
    items = [*base(events, model_call), *model_call.context_items, *model_call.response.output]
    outputs = {
        event.tool_call_completed.call_id: event.tool_call_completed.output
        for event in events
        if event.tool_call_completed.model_call_id == call_id
    }
    for item in model_call.response.output:
        if item.HasField("function_call") and item.function_call.call_id in outputs:
            items.append(outputs[item.function_call.call_id])
    for event in events:
        if event.HasField("turn_completed") and event.turn_completed.model_call_id == call_id:
            items.extend(event.turn_completed.items)
    return items


def base(events: Events, call: rollout_pb2.ModelCallCompleted) -> list[responses_pb2.Item]:
    if call.detached:
        return []
    if call.parent_call_id:
        return conversation(events, call.parent_call_id)
    return list(events[0].started.items)


def model_calls(events: Events) -> list[rollout_pb2.ModelCallCompleted]:
    return [
        event.model_call_completed for event in events if event.HasField("model_call_completed")
    ]


def check_requests(events: Events, requests: Iterable[model_pb2.CreateResponseRequest]) -> None:
    """Assert that each answered model call was sent what the events say it saw.

    Events name images that requests hold. A request that names the call before it stands for that
    call's conversation, too.
    """
    rollout_id = events[0].rollout_id
    by_id = {one.call_id: one for one in requests if one.rollout_id == rollout_id}
    sent: dict[str, list[responses_pb2.Item]] = {}
    images = media_urls(one.media_added.media for one in events if one.HasField("media_added"))
    outputs = {one.call_id: list(one.response.output) for one in model_calls(events)}
    for one in model_calls(events):
        request = by_id[one.call_id]
        parent = request.conversation.parent_call_id
        before = [*sent[parent], *outputs[parent]] if parent else []
        sent[one.call_id] = [*before, *request.params.input]
        seen = [*base(events, one), *one.context_items]
        assert sent[one.call_id] == [with_images(item, images) for item in seen]
