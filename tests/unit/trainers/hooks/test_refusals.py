"""What hooks can't hand over, by name."""

from __future__ import annotations

import json

import pytest

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import UserError
from gymmesh_resource import Task
from gymmesh_responses import item_from_json
from gymmesh_trainers import Rollout
from gymmesh_trainers.hooks import Repeats, refuse_images, refuse_sampling, refuse_seed

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
FILE = {"type": "input_file", "file_id": "f"}
# As datasets of veRL and SkyRL write them.
URL = {"type": "image_url", "image_url": "data:image/png;base64,AAAA"}
VIDEO = {"type": "video", "video": "clip.mp4"}
TEXT = {"type": "input_text", "text": "hello"}
PLAIN = {"type": "text", "text": "hello"}


def rollout(where: str, part: dict[str, str]) -> Rollout:
    message = pb.Rollout(rollout_id="ro")
    said = item_from_json({"type": "message", "role": "user", "content": [TEXT, part]})
    output = item_from_json({"type": "function_call_output", "call_id": "c", "output": [part]})
    match where:
        case "started":
            message.started.items.append(said)
        case "call":
            message.model_calls.add().context_items.append(said)
        case "turn":
            message.turns.add().items.append(said)
        case "tool":
            message.tool_calls.add().completed.output.CopyFrom(output)
    return Rollout(message, Task(pb.Task(task_id="t")))


@pytest.mark.parametrize("where", ["started", "call", "turn", "tool"])
@pytest.mark.parametrize("part", [IMAGE, FILE, URL, VIDEO], ids=json.dumps)
def test_an_image_is_refused_wherever_the_model_read_it(where: str, part: dict[str, str]) -> None:
    with pytest.raises(UserError, match="rollout ro of task t has an image or a file"):
        refuse_images(rollout(where, part), "veRL")


def test_the_refusal_says_how_many_there_are() -> None:
    message = rollout("started", IMAGE).message
    for where in ("call", "turn", "tool"):
        message.MergeFrom(rollout(where, IMAGE).message)
    with pytest.raises(UserError, match="has 4 images or files, but the hook for veRL"):
        refuse_images(Rollout(message, Task(pb.Task(task_id="t"))), "veRL")


@pytest.mark.parametrize("where", ["started", "call", "turn", "tool"])
@pytest.mark.parametrize("part", [TEXT, PLAIN], ids=json.dumps)
def test_texts_are_not(where: str, part: dict[str, str]) -> None:
    refuse_images(rollout(where, part), "veRL")


def test_a_seed_is_refused_by_name() -> None:
    refuse_seed(None, "t", "the engine")
    with pytest.raises(UserError, match="task t: seed: the engine does not support a seed"):
        refuse_seed(7, "t", "the engine")


def test_sampling_parameters_that_the_trainer_replaces_are_refused_by_name() -> None:
    kept = {"params": {"max_output_tokens": 33, "reasoning": {"effort": "low"}}, "repeats": 2}
    for settings in ({}, kept):
        refuse_sampling(settings, "AReaL", "gconfig")
    with pytest.raises(UserError) as said:
        refuse_sampling({"params": {"top_p": 0.5, "temperature": 0.2}}, "AReaL", "gconfig")
    assert str(said.value) == (
        "settings: params: temperature, top_p: AReaL samples with the values of "
        "its gconfig; set these parameters in gconfig"
    )


def test_repeats_of_a_task_with_a_seed_are_numbered() -> None:
    repeats = Repeats()
    seeded, other = {"prompt": "a", "seed": 1}, {"prompt": "b", "seed": 1}
    assert [repeats.next(one) for one in (seeded, other, seeded, seeded)] == [0, 0, 1, 2]
    assert [repeats.next({"prompt": "a"}) for _ in range(2)] == [0, 0]


def test_each_process_has_repeats_of_its_own() -> None:
    task = {"prompt": "a", "seed": 1}
    numbers = [[repeats.next(task) for _ in range(9)] for repeats in map(Repeats, range(8))]
    assert len({one for process in numbers for one in process}) == 9 * 8
    assert numbers[0] == list(range(9))
    assert max(map(Repeats(2**16 - 1).next, [task] * 9)) < 2**32
