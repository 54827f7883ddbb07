"""Rows in their bytes: the same for each repeat, and in NeMo Gym's form what they always were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import FailedAttempt, fold
from gymmesh_client.rollout import RolloutParts
from gymmesh_client.rows import completed_line, failure_line
from gymmesh_client.summary import counted
from gymmesh_responses import (
    CodecError,
    dumps,
    items_from_json,
    loads,
    new_message,
    params_from_json,
)
from gymmesh_rows import nemo_row, read_row
from tests.support.rollouts import answer, completed, make_events, make_task, verdict
from tests.unit.codec import strategies

VECTORS = sorted((Path(__file__).parents[2] / "contract" / "fold_vectors").glob("*.json"))
GOLDEN = (Path(__file__).parent / "golden_rows.jsonl").read_bytes().splitlines()
# Vectors of which version 0.1 made no rows.
LATER = (
    "captured_program", "failed_after_verdict", "failed_answer", "failed_partway", "sandbox_ends",
    "scored_choices",
)  # fmt: skip


def golden_task() -> pb.Task:
    params = {
        "input": [{"role": "user", "content": "What is 2+3?"}],
        "temperature": 0.7,
        "metadata": {"of": "the task"},
    }
    task = make_task(
        expected_answer="5", metadata={"source": "s", "timings": 1}, reward="the task's"
    )
    task.params.CopyFrom(params_from_json(params))
    task.seed = 7
    task.tags["level"] = "easy"
    return task


def rollouts_of_vectors() -> dict[str, pb.Rollout]:
    vectors = {path.stem: json.loads(path.read_text()) for path in VECTORS}
    return {
        name: json_format.ParseDict(vector["rollout"], pb.Rollout())
        for name, vector in vectors.items()
        if "rollout" in vector
    }


def line_of(task: pb.Task, rollout: pb.Rollout) -> bytes:
    """A row's line; what is counted of it must be what its reader counts."""
    line, figures = completed_line(task, RolloutParts.of(rollout))
    waited = sum(call.timings.queue_us for call in rollout.model_calls)
    assert figures == replace(
        counted(loads(line)), model_calls=len(rollout.model_calls), model_queue_us=waited
    )
    return line


def test_nemo_gyms_form_is_what_rows_always_were() -> None:
    task, rollouts = golden_task(), rollouts_of_vectors()
    rollouts = {name: one for name, one in rollouts.items() if name not in LATER}
    assert len(rollouts) == len(GOLDEN), "a new vector is one of LATER"
    for rollout, row in zip(rollouts.values(), map(loads, GOLDEN), strict=True):
        # The state of a session may hold expected answers, and stays in our own form.
        golden = {key: row[key] for key in row if key != "final_state"}
        if rollout.HasField("failed"):
            line = failure_line(task, FailedAttempt(rollout.failed.failure, rollout))
        else:
            line = line_of(task, rollout)
            assert line_of(task, rollout) == line  # as it was read before
        now = nemo_row(read_row(line))
        known = {key: now[key] for key in golden}
        if "verification" in golden:
            told = now["verification"]
            known["verification"] = {key: told[key] for key in golden["verification"]}
        assert known == golden
        assert nemo_row(read_row(dumps(row))) == golden


def repeat(task: pb.Task, *bodies: pb.RolloutEvent) -> pb.Rollout:
    events = make_events("ro-1", 1, *(bodies or (answer("5"), verdict(1.0), completed())))
    rollout = fold(events, "ro-1", task_id=task.task_id)
    rollout.started.items.MergeFrom(task.params.input)
    return rollout


@st.composite
def tasks(draw: st.DrawFn) -> pb.Task:
    keys = st.sampled_from(["metadata", "reward", "response", "expected_answer", "extracted", "x"])
    task = make_task(**draw(st.dictionaries(keys, strategies.documents, max_size=4)))
    params = st.fixed_dictionaries(
        {"input": st.sampled_from(["hi", [], [{"role": "user", "content": "hi"}]])},
        optional={"tools": strategies.documents, "temperature": strategies.documents},
    )
    task.params.CopyFrom(params_from_json(draw(params)))
    if draw(st.booleans()):
        task.seed = draw(st.integers(-(2**63), 2**63 - 1))
    task.tags.update(draw(st.dictionaries(strategies.clean_text, strategies.clean_text)))
    return task


@st.composite
def repeats(draw: st.DrawFn, task: pb.Task) -> pb.Rollout:
    call = answer("5")
    call.model_call_completed.response.output.extend(
        items_from_json(draw(st.lists(strategies.items, max_size=2)))
    )
    overlay = draw(st.dictionaries(strategies.keys, strategies.documents, max_size=3))
    call.model_call_completed.response.overlay_json = dumps(overlay)
    evidence = draw(st.dictionaries(strategies.keys, strategies.documents, max_size=2))
    rollout = repeat(task, call, verdict(0.5), completed())
    rollout.verified.verification.evidence_json = dumps(evidence)
    started = rollout.started
    if draw(st.booleans()):
        started.params.CopyFrom(params_from_json({"tools": draw(strategies.documents)}))
    if draw(st.booleans()):
        started.items.insert(0, new_message("system", draw(strategies.clean_text)))
    if draw(st.booleans()):
        started.environment = draw(st.sampled_from(["", "math", "other"]))
    started.session_id = draw(st.sampled_from(["", "s1", "s2"]))
    return rollout


@given(st.data())
def test_a_line_is_read_again(data: st.DataObject) -> None:
    task = data.draw(tasks())
    one = data.draw(repeats(task))
    # Repeats that begin alike and others, in turns, and another task by the same name.
    for rollout in [one, one, one, data.draw(repeats(task)), one, data.draw(repeats(task))]:
        row = read_row(line_of(task, rollout))
        assert row.by_id["c1"].answer_count == len(rollout.model_calls[0].response.output)
    again = pb.Task()
    again.CopyFrom(task)
    again.environment = "elsewhere"
    line_of(again, one)


@pytest.mark.parametrize("depth", [200, *range(244, 266)])
@pytest.mark.parametrize("where", ["extras", "first_items", "params", "output", "evidence"])
def test_what_is_nested_deeply_is_written_the_same_way(where: str, depth: int) -> None:
    deep: Any = "é"
    for _ in range(depth):
        deep = [deep]
    raw = b'{"k":' + b"[" * depth + '"é"'.encode() + b"]" * depth + b"}"
    task = make_task()
    rollout = repeat(task)
    if where == "extras":
        task.payload_json = raw
    elif where == "first_items":
        rollout.started.items[0].message.overlay_json = raw
    elif where == "params":
        rollout.started.params.overlay_json = raw
    elif where == "output":
        rollout.model_calls[0].response.output[0].message.overlay_json = raw
    else:
        rollout.verified.verification.evidence_json = raw
    parts = RolloutParts.of(rollout)
    results = set()
    for _ in range(3):
        try:
            results.add(completed_line(task, parts)[0])
        except CodecError as error:
            results.add(str(error).encode())
    assert len(results) == 1
