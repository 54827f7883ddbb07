"""What a row gives back of its task: everything, and nothing of the verdict."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import completed_row
from gymmesh_data import stored_rollout, task_of
from gymmesh_data.reverify import evidence_keys, stored_task, transcript_of
from gymmesh_data.reverify.stored_task import final_state_of, omitted_state
from gymmesh_responses import loads, new_message, params_from_json
from gymmesh_rows import COLUMNS
from tests.unit.data import rows

OWN_METADATA = (
    "steps_taken", "tools_used", "tool_outcomes", "verified", "seed", "timings", "token_forks",
    "weights_versions", "model_calls",
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=4),
    lambda below: st.lists(below, max_size=2) | st.dictionaries(st.text(max_size=2), below),
    max_leaves=4,
)
PAYLOADS = st.dictionaries(
    st.sampled_from(["expected_answer", "reward", "failure", "response", "tags_", "verification"])
    | st.text(min_size=1, max_size=3),
    VALUES,
    max_size=5,
).map(lambda found: {key: value for key, value in found.items() if key not in ("seed", "tags")})
# Never what the task has, too: then it is the task's.
EVIDENCE = st.dictionaries(st.sampled_from(["extracted", "why", "score"]), VALUES, max_size=3)


def row_of(payload: dict[str, Any], evidence: dict[str, Any]) -> dict[str, Any]:
    task = pb.Task(
        task_id="t-1",
        environment="math",
        agent="a",
        params=params_from_json({"input": "What?", "temperature": 0.5}),
        payload_json=json.dumps(payload).encode(),
        tags={"kind": "sum"},
        seed=7,
    )
    rollout = pb.Rollout(rollout_id="ro-1", attempt=2, run_id="run-1", task_id="t-1")
    rollout.started.params.CopyFrom(task.params)
    rollout.started.items.append(new_message("user", "What?"))
    rollout.started.seed = 7
    call = rollout.model_calls.add(call_id="c")
    call.response.output.append(new_message("assistant", "42"))
    verdict = rollout.verified.verification
    verdict.status, verdict.reward = pb.VERIFICATION_STATUS_VERIFIED, 1.0
    verdict.evidence_json = json.dumps(evidence).encode()
    rollout.completed.stop_reason = pb.STOP_REASON_MAX_STEPS
    return json.loads(json.dumps(completed_row(task, rollout)))  # type: ignore[no-any-return]


@given(payload=PAYLOADS, evidence=EVIDENCE)
def test_a_row_gives_back_its_task(payload: dict[str, Any], evidence: dict[str, Any]) -> None:
    row = row_of(payload, evidence)
    rollout = stored_rollout(row, "here")
    task = stored_task(rollout, "math")
    assert loads(task.payload_json) == payload
    assert (task.task_id, task.environment, task.agent) == ("t-1", "math", "a")
    assert (task.seed, dict(task.tags)) == (7, {"kind": "sum"})
    assert task.params.input_text == "What?"
    assert task.params.temperature.real == 0.5
    assert transcript_of(rollout) == [new_message("assistant", "42")]
    wanted = {key for key in evidence if key not in payload and key not in COLUMNS}
    assert evidence_keys(row) == wanted


@given(st.dictionaries(st.text(max_size=3) | st.sampled_from(OWN_METADATA), VALUES, min_size=1))
def test_metadata_of_a_task_comes_back(metadata: dict[str, Any]) -> None:
    row = row_of({"metadata": metadata}, {})
    assert loads(stored_task(stored_rollout(row, "here"), "math").payload_json) == {
        "metadata": metadata
    }


def test_a_key_that_tasks_have_is_the_tasks() -> None:
    row = row_of({"mode": "rule"}, {"mode": "rule", "extracted": "4"})
    assert evidence_keys(row) == {"mode", "extracted"}  # its place alone does not tell
    assert evidence_keys(row, {"mode"}) == {"extracted"}


def test_the_right_answer_is_the_task_s_also_where_evidence_begins_with_it() -> None:
    truth = {"expected_answer": "4"}
    row = row_of(truth, truth | {"extracted": "5"})
    assert evidence_keys(row) == {"extracted"}
    assert task_of(stored_rollout(row, "here"))["expected_answer"] == "4"


@pytest.mark.parametrize("own", [5, "state", ["state"], True, None])
def test_a_final_state_that_is_no_state_is_none(own: Any) -> None:
    """It may be a key of the task, in rows of other programs."""
    rollout = stored_rollout(rows.row(final_state=own), "here")
    assert final_state_of(rollout) is None
    assert omitted_state(rollout) == ""
