"""Images of a rollout: in events once, whole for the model, the environment and the verifier."""

from __future__ import annotations

from typing import Any

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_responses import (
    image_urls,
    item_from_json,
    items_from_json,
    media_urls,
    params_from_json,
)
from gymmesh_runtime.errors import MeshError
from tests.support.images import image_part, png, png_url
from tests.unit.agent.mesh import ask, running
from tests.unit.agent.servicers import ScriptedModel, TinyEnvironment, call, calls, says

Events = list[rollout_pb2.RolloutEvent]
STEPS = 50


def pictures(*seeds: int) -> responses_pb2.ContentParts:
    output = [image_part(seed) for seed in seeds]
    item = item_from_json({"type": "function_call_output", "call_id": "", "output": output})
    return item.function_call_output.parts


async def look(arguments: bytes) -> resource_pb2.CallToolResponse:
    return resource_pb2.CallToolResponse(parts=pictures(1, 2), outcome=rollout_pb2.TOOL_OUTCOME_OK)


def asked_with(*parts: Any) -> agent_pb2.RunRolloutRequest:
    request = ask(max_steps=STEPS + 1)
    message = {"role": "user", "content": list(parts)}
    request.task.params.CopyFrom(params_from_json({"input": [message]}))
    return request


def media_of(events: Events) -> list[rollout_pb2.Media]:
    return [one.media_added.media for one in events if one.HasField("media_added")]


def items_of(events: Events) -> list[responses_pb2.Item]:
    """All items that events carry, each behind the media that it names."""
    known: dict[str, str] = {}
    found: list[responses_pb2.Item] = []
    for event in events:
        match event.WhichOneof("event"):
            case "media_added":
                assert event.ignorable
                assert event.sequence > 1
                known |= media_urls([event.media_added.media])
                continue
            case "started":
                found += event.started.items
                continue  # what it names comes right after it
            case "model_call_completed":
                items = list(event.model_call_completed.context_items)
            case "tool_call_completed":
                items = [event.tool_call_completed.output]
            case "turn_completed":
                items = list(event.turn_completed.items)
            case _:
                continue
        assert {url for item in items for url in image_urls(item)} <= known.keys()
        found += items
    return found


@pytest.mark.parametrize("path", ["direct", "grpc", "mux"])
async def test_an_image_that_every_call_sees_is_sent_once(path: str) -> None:
    steps = [calls(call("look", call_id=f"f{n}")) for n in range(STEPS)]
    model = ScriptedModel([*steps, says("a cat")])
    environment = TinyEnvironment(tools={"look": look})
    async with running(path, environment, {"policy": model}) as mesh:
        events = await mesh.run(asked_with(image_part(1), image_part(3)))
    assert events[-1].HasField("completed")
    assert sorted(one.data for one in media_of(events)) == sorted(map(png, (1, 2, 3)))
    urls = [url for item in items_of(events) for url in image_urls(item)]
    assert len(urls) == 2 + 2 * STEPS
    assert set(urls) == media_urls(media_of(events)).keys()
    whole = sum(event.ByteSize() for event in events)
    assert whole < 3 * len(png_url()) + 1000 * (STEPS + 3)
    # The model and the verifier got the images themselves.
    (verified,) = environment.verified
    shown = [url for item in verified.transcript for url in image_urls(item)]
    assert shown == [png_url(1), png_url(2)] * STEPS
    sent = [url for one in model.requests for item in one.params.input for url in image_urls(item)]
    assert set(sent) == {png_url(1), png_url(2), png_url(3)}


async def test_images_of_turns_are_sent_once() -> None:
    message = {"role": "user", "content": [image_part(1)]}
    items = items_from_json([message])
    turns = [
        resource_pb2.NextTurnResponse(items=items),
        resource_pb2.NextTurnResponse(items=items),
        resource_pb2.NextTurnResponse(done=True),
    ]
    environment = TinyEnvironment(turns=turns)
    model = ScriptedModel([says("one"), says("two"), says("three")])
    async with running("direct", environment, {"policy": model}) as mesh:
        events = await mesh.run()
    assert [one.data for one in media_of(events)] == [png(1)]
    urls = [url for item in items_of(events) for url in image_urls(item)]
    assert urls == [*media_urls(media_of(events))] * 2
    sent = [url for one in model.requests for item in one.params.input for url in image_urls(item)]
    assert set(sent) == {png_url(1)}


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/cat.png",
        "data:image/png;base64,iVBORw0KGgo",  # base64 without its padding
        "data:image/png,raw",
    ],
)
async def test_what_is_not_held_stays_as_it_is(url: str) -> None:
    model = ScriptedModel([says("a cat")])
    async with running("direct", TinyEnvironment(), {"policy": model}) as mesh:
        events = await mesh.run(asked_with({"type": "input_image", "image_url": url}))
    assert not media_of(events)
    assert list(image_urls(events[0].started.items[0])) == [url]


async def test_the_same_bytes_as_another_type_stay_as_they_are() -> None:
    other = png_url(1).replace("image/png", "image/x-png")
    parts = [image_part(1), {"type": "input_image", "image_url": other}]
    model = ScriptedModel([says("a cat")])
    async with running("direct", TinyEnvironment(), {"policy": model}) as mesh:
        events = await mesh.run(asked_with(*parts))
    (medium,) = media_of(events)
    named, kept = image_urls(events[0].started.items[0])
    assert media_urls([medium]) == {named: png_url(1)}
    assert kept == other


async def test_a_rollout_that_never_opened_has_its_images() -> None:
    error = MeshError(errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT, "no")
    environment = TinyEnvironment(create_errors=[error])
    async with running("direct", environment, {"policy": ScriptedModel([])}) as mesh:
        events = await mesh.run(asked_with(image_part(1)))
    assert [one.WhichOneof("event") for one in events] == ["started", "media_added", "failed"]
    assert list(image_urls(events[0].started.items[0])) == [*media_urls(media_of(events))]
