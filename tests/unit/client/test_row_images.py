"""Images in rows: each once, whoever saw it, and whole for everybody who reads the row."""

from __future__ import annotations

from typing import Any

import pytest

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import completed_row, conversation, fold, transcript
from gymmesh_client.groups.judging import HeldRollout, group_request
from gymmesh_client.rollout import continuation
from gymmesh_responses import (
    dumps,
    item_from_json,
    items_to_list,
    media_url,
    medium_of,
    params_from_json,
    params_to_dict,
)
from gymmesh_rows import nemo_row, read_row
from tests.support.images import image_part, png, png_url
from tests.support.rollouts import answer, completed, make_events, make_task, verdict

CALLS = 50
ENCODED = png_url(1).partition(",")[2]


def added(seed: int) -> pb.RolloutEvent:
    event = pb.RolloutEvent(ignorable=True)
    medium = medium_of(png_url(seed))
    assert medium is not None
    event.media_added.media.CopyFrom(medium)
    return event


def named(seed: int) -> dict[str, str]:
    medium = medium_of(png_url(seed))
    assert medium is not None
    return {"type": "input_image", "image_url": media_url(medium.digest)}


def task_with_image() -> pb.Task:
    task = make_task()
    message = {"type": "message", "role": "user", "content": [image_part(1)]}
    task.params.CopyFrom(params_from_json({"input": [message]}))
    return task


def rollout(task: pb.Task, calls: int = CALLS, preamble: bool = False) -> pb.Rollout:
    """Each call begins anew with the image, as a program may send it, or gets it from a tool."""
    bodies = [added(1)]
    for number in range(1, calls + 1):
        event = answer(f"step {number}", f"c{number}")
        call = event.model_call_completed
        call.detached = bool(number % 2)
        message = {"type": "message", "role": "user", "content": [named(1)]}
        call.context_items.append(item_from_json(message))
        call.parent_call_id = "" if call.detached else f"c{number - 1}"
        bodies.append(event)
    events = make_events("ro-1", 1, *bodies, verdict(1.0), completed())
    started = events[0].started
    started.params.CopyFrom(params_from_json({}))
    if preamble:
        started.items.append(item_from_json({"role": "system", "content": "Look."}))
    first = {"type": "message", "role": "user", "content": [named(1)]}
    started.items.append(item_from_json(first))
    return fold(events, "ro-1", task_id=task.task_id)


@pytest.mark.parametrize("preamble", [False, True])
def test_an_image_that_fifty_calls_saw_is_in_the_row_once(preamble: bool) -> None:
    task = task_with_image()
    line = dumps(completed_row(task, rollout(task, preamble=preamble)))
    assert line.count(ENCODED.encode()) == 1
    row = read_row(line)
    assert [one.data for one in row.media] == [ENCODED]
    assert bool(row.first_items) == preamble
    # Read, it is where it was.
    assert row.params["input"] == params_to_dict(task.params)["input"]
    assert row.items(row.opening)[-1]["content"] == [image_part(1)]
    for call in row.calls:
        assert row.items(row.part(call))[0]["content"] == [image_part(1)]


def test_a_row_without_media_is_as_it_was() -> None:
    task = task_with_image()
    events = make_events("ro-1", 1, answer("5"), verdict(1.0), completed(), task=task)
    row = completed_row(task, fold(events, "ro-1"))
    assert "media" not in row
    assert "first_items" not in row
    assert row["responses_create_params"] == params_to_dict(task.params)


def test_the_form_of_nemo_gym_holds_the_images() -> None:
    task = task_with_image()
    made: Any = nemo_row(read_row(dumps(completed_row(task, rollout(task, 2, preamble=True)))))
    assert b"gymmesh-media" not in dumps(made)
    assert made["responses_create_params"] == params_to_dict(task.params)
    assert made["response"]["output"][0]["content"] == [image_part(1)]


def test_conversations_and_judges_of_groups_get_the_images() -> None:
    task = task_with_image()
    found = rollout(task, 2)
    before = found.SerializeToString(deterministic=True)
    wanted = [image_part(1)]
    for items in (conversation(found, "c2"), continuation(found, "c1"), transcript(found)):
        assert items_to_list(items)[0]["content"] == wanted
    member = group_request([HeldRollout(task, found)]).group.members[0]
    assert member.transcript[0].message.parts.parts[0].input_image.image_url == png_url(1)
    assert found.SerializeToString(deterministic=True) == before
    assert png(1) == found.media[0].data
