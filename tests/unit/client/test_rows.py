"""Rows: a superset of NeMo Gym's, nothing lost, no reward invented."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from openai.types.responses import Response

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import FailedAttempt, Fold, completed_row, failure_row, fold
from gymmesh_client.rollout import RolloutParts
from gymmesh_client.rows import completed_line
from gymmesh_responses import (
    dumps,
    function_call_output,
    item_from_json,
    loads,
    new_message,
    params_from_json,
    text_of,
)
from gymmesh_rows import read_row
from gymmesh_runtime.errors import MeshError, to_status
from tests.support.rollouts import answer, completed, failed, make_events, make_task, verdict


def tool_rollout(task: pb.Task) -> pb.Rollout:
    call = pb.RolloutEvent()
    call.model_call_completed.call_id = "c1"
    call.model_call_completed.response.output.append(
        item_from_json(
            {
                "type": "function_call",
                "call_id": "f1",
                "name": "calculator",
                "arguments": '{"expression": "2+3"}',
                "id": "fc_1",
                "status": "completed",
            }
        )
    )
    call.model_call_completed.response.usage.input_tokens = 7
    call.model_call_completed.response.usage.output_tokens = 2
    done = pb.RolloutEvent()
    done.tool_call_completed.call_id = "f1"
    done.tool_call_completed.name = "calculator"
    done.tool_call_completed.model_call_id = "c1"
    done.tool_call_completed.output.CopyFrom(function_call_output("f1", "5"))
    last = answer("5", "c2")
    last.model_call_completed.parent_call_id = "c1"
    turn = pb.RolloutEvent()
    turn.turn_completed.turn, turn.turn_completed.model_call_id = 1, "c2"
    turn.turn_completed.items.append(new_message("user", "well done"))
    bodies = [call, done, last, turn, verdict(1.0, extracted_answer="5"), completed()]
    events = make_events("ro-1", 3, *bodies, task=task)
    return fold(events, "ro-1", 3, run_id="run-1", task_id=task.task_id, repeat_index=1)


def test_a_completed_row() -> None:
    task = make_task(expected_answer="5", question="What is 2+3?")
    row = completed_row(task, tool_rollout(task))
    assert row["responses_create_params"] == {
        "input": [{"role": "user", "content": "What is 2+3?"}]
    }
    assert "first_items" not in row
    assert [item["type"] for item in row["response"]["output"]] == [
        "function_call",
        "function_call_output",
        "message",
        "message",
    ]
    assert row["response"]["usage"]["input_tokens"] == 17
    assert row["response"]["usage"]["total_tokens"] == 22
    assert row["reward"] == 1.0
    assert (row["expected_answer"], row["extracted_answer"]) == ("5", "5")
    identity = ("task_id", "rollout_id", "run_id", "repeat_index", "attempt", "environment")
    assert [row[key] for key in identity] == ["t-1", "ro-1", "run-1", 1, 3, "math"]
    assert row["stop_reason"] == "MODEL_FINISHED"
    assert row["verification"]["status"] == "VERIFIED"
    assert row["verification"]["evidence"] == {"extracted_answer": "5"}
    assert row["metadata"]["steps_taken"] == 2
    assert row["metadata"]["tools_used"] == ["calculator"]
    assert row["metadata"]["verified"] is True
    assert loads(dumps(row)) == row


def test_openais_types_parse_the_response() -> None:
    task = make_task()
    row = completed_row(task, tool_rollout(task))
    parsed = Response.construct(**row["response"])
    assert parsed.id == "resp-1"
    assert parsed.status == "completed"
    assert parsed.usage is not None
    assert parsed.usage.input_tokens_details.cached_tokens == 0
    assert parsed.output[0].type == "function_call"


def test_golden_responses_have_no_key_that_ours_lacks(golden_dir: Path) -> None:
    """Each key that every NeMo row's response has is in ours, too."""
    rows = [
        json.loads(line)["response"]
        for path in sorted(golden_dir.glob("*.example_rollouts.jsonl"))
        for line in path.read_text().splitlines()
    ]
    always = set.intersection(*(set(row) for row in rows))
    task = make_task()
    assert always <= set(completed_row(task, tool_rollout(task))["response"])


def test_not_judged_is_null_and_never_zero() -> None:
    task, bodies = make_task(), (answer("5"), verdict(None), completed())
    row = completed_row(task, fold(make_events("ro-1", 1, *bodies), "ro-1"))
    assert row["reward"] is None
    assert row["metadata"]["verified"] is False
    assert row["verification"]["status"] == "PENDING"


def test_what_the_agent_put_first_is_seen() -> None:
    task = make_task()
    rollout = tool_rollout(task)
    rollout.started.items.insert(0, new_message("system", "Be brief."))
    rollout.started.params.CopyFrom(
        params_from_json(
            {"temperature": 0.7, "tools": [{"type": "function", "name": "calculator"}]}
        )
    )
    row = completed_row(task, rollout)
    assert [item["role"] for item in row["first_items"]] == ["system", "user"]
    params = row["responses_create_params"]
    assert len(params["input"]) == 1
    assert params["temperature"] == 0.7
    assert params["tools"][0]["name"] == "calculator"


def test_a_tasks_key_is_never_lost() -> None:
    extras: dict[str, Any] = {
        "reward": "the task's",
        "metadata": {"source": "s", "timings": "t"},
        "extracted_answer": "the task's",
        "response": 1,
    }
    task = make_task(**extras)
    row = completed_row(task, tool_rollout(task))
    assert row["reward"] == 1.0
    assert row["extracted_answer"] == "the task's"
    assert row["verification"]["evidence"]["extracted_answer"] == "5"
    assert row["metadata"]["source"] == "s"
    assert row["metadata"]["steps_taken"] == 2
    assert row["task_extras"] == {
        "reward": "the task's",
        "metadata": {"timings": "t"},
        "response": 1,
    }


@pytest.mark.parametrize(
    "metadata",
    [
        {"seed": None},
        {"seed": "abc"},
        {"seed": 1.5},
        {"seed": 3},
        {"weights_versions": None},
        {"weights_versions": ["v1"]},
    ],
)
def test_a_tasks_metadata_never_makes_a_row_that_is_refused(metadata: dict[str, Any]) -> None:
    task = make_task(metadata={"source": "s"} | metadata)
    line, _ = completed_line(task, RolloutParts.of(tool_rollout(task)))
    row = read_row(line)
    assert (row.metadata.steps_taken, row.metadata.seed) == (2, UNSET)
    assert row.metadata.weights_versions == []
    written = loads(line)
    assert written["metadata"]["source"] == "s"
    assert written["task_extras"] == {"metadata": metadata}


def test_calls_that_share_an_id_have_each_their_own_outputs_and_turns() -> None:
    task = make_task()
    rollout = pb.Rollout(rollout_id="ro-1", attempt=1, task_id=task.task_id)
    for said in ("one", "two"):
        call = rollout.model_calls.add(call_id="c", model="policy", actor=said)
        asked = call.response.output.add().function_call
        asked.call_id, asked.name = "x", "look"
        done = rollout.tool_calls.add().completed
        done.model_call_id, done.call_id, done.name = "c", "x", "look"
        done.output.CopyFrom(function_call_output("x", said))
        turn = rollout.turns.add(model_call_id="c")
        turn.items.append(new_message("user", f"after {said}"))
    rollout.completed.stop_reason = pb.STOP_REASON_MODEL_FINISHED
    first, second = completed_row(task, rollout)["calls"]
    assert [one.get("output", one.get("content")) for one in first["items"][1:]] == [
        "one",
        "after one",
    ]
    assert (second["first_item"], second["item_count"]) == (0, 3)
    output = completed_row(task, rollout)["response"]["output"]
    assert [one.get("output", one.get("content")) for one in output[1:]] == ["two", "after two"]


def test_a_failed_rollout_of_a_task_that_is_not_json_has_its_failure() -> None:
    task = make_task()
    task.payload_json = b"[1]"
    rollout = fold(make_events("ro-1", 1, answer("4"), failed()), "ro-1", 1, task_id="t-1")
    row = failure_row(task, FailedAttempt(rollout.failed.failure, rollout))
    assert row["failure"]["boundary"] == "MODEL"
    assert (row["task_id"], row["environment"], row["agent"]) == ("t-1", "math", "tool_loop")


def test_a_failure_row_has_no_reward() -> None:
    task = make_task(expected_answer="5")
    events = make_events("ro-1", 2, answer("4"), failed())
    rollout = fold(events, "ro-1", 2, task_id="t-1", repeat_index=1)
    row = failure_row(task, FailedAttempt(rollout.failed.failure, rollout))
    assert row["reward"] is None
    assert "verification" not in row
    assert row["failure"]["boundary"] == "MODEL"
    assert row["failure"]["status"]["message"] == "the endpoint is down"
    assert row["failure"]["retry_safe"] is True
    assert row["response"]["output"][0]["content"] == "4"
    assert row["response"]["status"] == "failed"
    assert (row["attempt"], row["repeat_index"], row["expected_answer"]) == (2, 1, "5")


def test_a_failure_before_any_answer_is_not_a_completed_response() -> None:
    rollout = fold(make_events("ro-1", 1, failed()), "ro-1", task_id="t-1")
    row = failure_row(make_task(), FailedAttempt(rollout.failed.failure, rollout))
    assert row["response"]["output"] == []
    assert row["response"]["status"] == "failed"


def test_a_failure_before_anything_happened() -> None:
    from gymmesh.errors.v1 import errors_pb2

    error = MeshError(errors_pb2.ERROR_REASON_MODEL_TIMEOUT, "late", metadata={"model": "policy"})
    failure = pb.Failure(boundary=pb.BOUNDARY_MODEL, status=to_status(error))
    row = failure_row(make_task(), FailedAttempt(failure, Fold("ro-1", task_id="t-1").rollout))
    assert row["failure"]["status"]["reason"] == "MODEL_TIMEOUT"
    assert row["failure"]["status"]["metadata"] == {"model": "policy"}
    assert row["response"]["output"] == []
    assert (row["task_id"], row["environment"], row["agent"]) == ("t-1", "math", "tool_loop")


def test_an_agent_of_actors_alone_has_the_transcript_that_was_judged() -> None:
    call = answer("from an actor")
    call.model_call_completed.actor = "solver"
    events = make_events("r-1", 1, call, verdict(1.0), completed(), task=make_task())
    rollout = fold(events, "r-1")
    row = completed_row(make_task(), rollout)
    assert text_of(item_from_json(row["response"]["output"][-1])) == "from an actor"
