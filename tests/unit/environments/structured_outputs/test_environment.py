"""Rows as they come, answers as text and as calls, rows that are refused, recorded rewards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.environments.structured_outputs import StructuredOutputsEnvironment
from gymmesh_responses import item_from_json, new_message, params_from_json
from gymmesh_runtime.errors import MeshError
from tests.unit.resource.served import Served, served, task

SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer"}}}'


def _row(**changes: Any) -> dict[str, Any]:
    return {"schema_str": SCHEMA, "schema_type": "json"} | changes


def _calls(**changes: Any) -> dict[str, Any]:
    return _row(response_mode="tool_call", tool_name="save", tool_payload_key="data") | changes


def _call(name: str, arguments: str) -> responses_pb2.Item:
    return item_from_json(
        {"type": "function_call", "name": name, "arguments": arguments, "call_id": "c"}
    )


async def _verify(
    environment: Served, row: dict[str, Any], *items: responses_pb2.Item
) -> tuple[float, str | None]:
    verification = await environment.verify(of=task(**row), transcript=list(items))
    assert verification.status == rollout_pb2.VERIFICATION_STATUS_VERIFIED
    return verification.reward, json.loads(verification.evidence_json)["error_type"]


async def test_text_of_all_messages_is_judged() -> None:
    async with served(StructuredOutputsEnvironment()) as environment:
        two = [new_message("assistant", '{"n": '), new_message("assistant", "1}")]
        assert await _verify(environment, _row(), *two) == (1.0, None)
        assert await _verify(environment, _row()) == (0.0, "empty_response")
        yaml = _row(schema_type="yaml", response_mode="text")
        assert await _verify(environment, yaml, new_message("assistant", "n: 1")) == (1.0, None)
        old = {"schema": SCHEMA, "schema_type": "json"}
        assert await _verify(environment, old, new_message("assistant", '{"n": 1}')) == (1.0, None)
        # A call is no text.
        assert await _verify(environment, _row(), _call("save", '{"n": 1}')) == (
            0.0,
            "empty_response",
        )


@pytest.mark.parametrize(
    ("changes", "calls", "verdict"),
    [
        ({}, [("save", '{"data": {"n": 1}}')], (1.0, None)),
        ({"tool_payload_key": None}, [("save", '{"n": 1}')], (1.0, None)),
        ({"tool_name": None}, [("any", '{"data": {"n": 1}}')], (1.0, None)),
        ({}, [("other", "{}"), ("save", '{"data": {"n": 1}}')], (0.0, "multiple_tool_calls")),
        ({}, [("save", '{"data": {"n": 1}}')] * 2, (0.0, "multiple_tool_calls")),
        (
            {"tool_name": None},
            [("a", '{"data": {"n": 1}}'), ("b", "{}")],
            (0.0, "multiple_tool_calls"),
        ),
        ({}, [("other", '{"data": {"n": 1}}')], (0.0, "wrong_tool_name")),
        ({}, [("Save", '{"data": {"n": 1}}')], (0.0, "wrong_tool_name")),
        ({}, [("save", '{"n": 1}')], (0.0, "missing_tool_payload_key")),
        ({}, [("save", '{"data": {"n": 1}')], (0.0, "tool_arguments_parse_error")),
        ({}, [], (0.0, "missing_tool_call")),
    ],
)
async def test_a_call_is_judged_by_its_arguments(
    changes: dict[str, Any], calls: list[tuple[str, str]], verdict: tuple[float, str | None]
) -> None:
    async with served(StructuredOutputsEnvironment()) as environment:
        items = [new_message("assistant", '{"n": 1}'), *(_call(*call) for call in calls)]
        assert await _verify(environment, _calls(**changes), *items) == verdict


async def test_a_call_ends_the_episode_without_running_anything() -> None:
    tool = {
        "type": "function",
        "name": "save",
        "parameters": {"type": "object", "properties": {}},
    }
    own = task(**_calls())
    own.params.CopyFrom(params_from_json({"input": "x", "tools": [tool]}))
    async with served(StructuredOutputsEnvironment()) as environment:
        session = await environment.create(own)
        reply = await environment.call(session.session_id, "save", {"data": {"n": 1}})

    assert reply.done
    assert reply.outcome == rollout_pb2.TOOL_OUTCOME_OK


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"schema_type": "json"}, "schema_str"),
        (_row(schema_str=""), "schema_str"),
        (_row(schema_str="[]"), "schema_str"),
        (_row(schema_str={"type": "object"}), "schema_str"),
        ({"schema": "{"}, "schema"),
        (_row(schema_str='{"$ref": "#"}'), "schema_str"),
        (_row(schema_str='{"type": "string", "pattern": "(?i)x"}'), "schema_str"),
        (_row(schema_type="csv"), "schema_str"),
        (_row(schema_type="ini"), "schema_type"),
        (_row(response_mode="voice"), "response_mode"),
        (_calls(tool_name=1), "tool_name"),
        (_calls(tool_payload_key=["data"]), "tool_payload_key"),
    ],
)
async def test_a_broken_row_is_refused_by_its_key(row: dict[str, Any], field: str) -> None:
    async with served(StructuredOutputsEnvironment()) as environment:
        with pytest.raises(MeshError) as caught:
            await environment.create(task(**row))

    assert caught.value.reason_name == "TASK_INVALID"
    assert field in caught.value.message


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        ('{"type": "number", "minimum": "1"}', '"x"'),
        ('{"type": "number", "minimum": "1"}', "no JSON"),
        ('{"type": "string", "pattern": "("}', '"x"'),
        ('{"properties": []}', '"x"'),
    ],
)
async def test_a_schema_that_cannot_judge_is_a_failure_not_a_reward(
    schema: str, answer: str
) -> None:
    async with served(StructuredOutputsEnvironment()) as environment:
        row = _row(schema_str=schema)
        with pytest.raises(MeshError) as caught:
            await _verify(environment, row, new_message("assistant", answer))

    assert caught.value.reason_name == "TASK_INVALID"


async def test_an_answer_on_which_a_pattern_runs_away_is_wrong() -> None:
    runaway = _row(schema_str='{"type": "string", "pattern": "^(a+)+$"}')
    answer = new_message("assistant", json.dumps("a" * 60 + "b"))
    async with served(StructuredOutputsEnvironment(judge_timeout_s=2.0)) as environment:
        assert await _verify(environment, runaway, answer) == (0.0, "validation_error")
        # The pool has replaced the worker that it lost.
        right = new_message("assistant", '"aaa"')
        assert await _verify(environment, runaway, right) == (1.0, None)


async def test_a_schema_on_which_any_answer_takes_too_long_is_a_failure() -> None:
    # Each schema asks the next one twice, and the last one says no.
    ask = {f"s{n}": {"anyOf": [{"$ref": f"#/$defs/s{n + 1}"}] * 2} for n in range(40)}
    endless = json.dumps({"$ref": "#/$defs/s0", "$defs": ask | {"s40": False}})
    async with served(StructuredOutputsEnvironment(judge_timeout_s=0.5)) as environment:
        with pytest.raises(MeshError) as caught:
            await _verify(environment, _row(schema_str=endless), new_message("assistant", "1"))

    assert caught.value.reason_name == "VERIFIER_TIMEOUT"


async def test_a_reference_is_chosen_by_the_row() -> None:
    refusal = new_message("assistant", "I'm sorry, I can't do that.")
    rivers = {"type": "array", "items": {"type": "object", "properties": {"n": {}, "km": {}}}}
    row = _row(schema_str=json.dumps(rivers), schema_type="csv")
    async with served(StructuredOutputsEnvironment()) as environment:
        assert await _verify(environment, row, refusal) == (0.0, "validation_error")
        assert await _verify(environment, row | {"compat": "nemo"}, refusal) == (1.0, None)


@pytest.mark.golden
async def test_agrees_with_recorded_rewards(golden_dir: Path) -> None:
    file = golden_dir / "structured_outputs.example_rollouts.jsonl"
    recorded = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [rollout["reward"] for rollout in recorded] == [0.0, 0.0, 1.0, 0.0, 0.0]

    async with served(StructuredOutputsEnvironment(), compat="nemo") as environment:
        for rollout in recorded:
            answer = rollout["response"]["output"][-1]["content"][0]["text"]
            row = _row(schema_str=_prompted_schema(rollout))
            verdict = await _verify(environment, row, new_message("assistant", answer))
            # The zeros are answers in Markdown fences, which are no JSON.
            expected = (1.0, None) if rollout["reward"] else (0.0, "parse_error")
            assert verdict == expected


def _prompted_schema(rollout: dict[str, Any]) -> str:
    """The schema, which these rollouts have in the prompt only, as a map of properties."""
    decoder = json.JSONDecoder()
    found: list[dict[str, Any]] = []
    for message in rollout["responses_create_params"]["input"]:
        start = message["content"].find('{"')
        if start >= 0:
            found.append(decoder.raw_decode(message["content"], start)[0])
    (properties,) = found
    return json.dumps({"type": "object", "properties": properties})


@pytest.mark.golden
async def test_takes_the_recorded_rows_unchanged(golden_dir: Path) -> None:
    """The rows of version 4 have no recorded rollouts: schemas are checked, empty answers fail."""
    file = golden_dir / "structured_outputs.example.jsonl"
    async with served(StructuredOutputsEnvironment(), compat="nemo") as environment:
        for row in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
            params = row.pop("responses_create_params")
            own = task(**row)
            own.params.CopyFrom(params_from_json(params))
            session = await environment.create(own)
            wrapped: dict[str, Any] = (
                {row["tool_payload_key"]: {}} if row["tool_payload_key"] else {}
            )
            call = _call(row["tool_name"], json.dumps(wrapped))
            verification = await environment.verify(session.session_id, own, [call])
            evidence = json.loads(verification.evidence_json)
            assert evidence["error_type"] == "validation_error", evidence
