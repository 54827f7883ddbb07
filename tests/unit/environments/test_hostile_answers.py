"""Whatever a model answers gets a verdict: never a fault, a time-out or an invalid task.

A rollout whose verification fails is sampled again, so an answer that could make it fail would
let the model choose whether it is judged.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.environment import Environment
from gymmesh_resource.environments.calendar import CalendarEnvironment
from gymmesh_resource.environments.function_calling import FunctionCallingEnvironment
from gymmesh_resource.environments.instruction_following import InstructionFollowingEnvironment
from gymmesh_resource.environments.instruction_following.registry import INSTRUCTIONS
from gymmesh_resource.environments.mcqa import McqaEnvironment
from gymmesh_resource.environments.sql import SqlEnvironment
from gymmesh_resource.environments.string_match import StringMatchEnvironment
from gymmesh_resource.environments.structured_outputs import StructuredOutputsEnvironment
from gymmesh_resource.environments.workplace import WorkplaceEnvironment
from gymmesh_responses import params_from_json
from tests.unit.environments.hostile_answers import FRAMES, call, said, transcripts
from tests.unit.resource.served import served, task

pytestmark = pytest.mark.long(seconds=130)

# Arguments for all instructions there are.
_ARGUMENTS: dict[str, Any] = {
    "keywords": ["x"], "forbidden_words": ["x"], "keyword": "x", "keyword1": "x",
    "keyword2": "y", "frequency": 1, "relation": "at least", "letter": "x", "let_frequency": 1,
    "let_relation": "less than", "n": 1, "m": 1, "language": "en", "num_words": 5,
    "num_sentences": 5, "num_paragraphs": 2, "nth_paragraph": 1, "first_word": "x",
    "num_placeholders": 2, "postscript_marker": "P.S.", "num_bullets": 2, "num_highlights": 2,
    "section_spliter": "Section", "num_sections": 2, "prompt_to_repeat": "x", "N": 2,
    "n_start": 0, "n_end": 1, "phrase": "x y z", "small_n": 2, "end_phrase": "x",
    "capital_frequency": 1, "capital_relation": "at least", "last_word": "x", "n_sent": 1,
    "n_words": 1,
}  # fmt: skip
_SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": ["number", "array"], "multipleOf": 0.1, "uniqueItems": True},
        "s": {"type": "string", "pattern": "^(a+)+$"},
    },
}
_TOOLS = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
_SCRIPT = "CREATE TABLE t (x); INSERT INTO t VALUES (1);"


@dataclass(frozen=True)
class Case:
    """An environment with short limits, a row, and the tool and argument that are called."""

    make: Callable[[], Environment[Any]]
    row: dict[str, Any]
    tool: str = "f"
    argument: str = "n"
    frames: Sequence[str] = FRAMES
    longest: int | None = None


def _structured(kind: str, **row: Any) -> Case:
    shapes: dict[str, dict[str, Any]] = {
        "csv": {"type": "array", "items": _SCHEMA},
        "xml": {"type": "object", "properties": {"root": _SCHEMA}},
    }
    schema = shapes.get(kind, _SCHEMA)
    row = {"schema_str": json.dumps(schema), "schema_type": kind} | row
    return Case(lambda: StructuredOutputsEnvironment(judge_timeout_s=0.25), row)


def _matching(mode: str) -> Case:
    return Case(StringMatchEnvironment, {"expected_answer": "15", "extraction_mode": mode})


def _choosing(mode: str, **row: Any) -> Case:
    options = [{"A": "Circle"}, {"B": "a square"}]
    row = {"options": options, "expected_answer": "A", "grading_mode": mode} | row
    return Case(lambda: McqaEnvironment(pattern_timeout_s=0.2), row)


CASES: dict[str, Case] = {
    **{f"structured_outputs, {kind}": _structured(kind)
       for kind in ("json", "yaml", "xml", "toml", "csv")},
    "structured_outputs, a call": _structured("json", response_mode="tool_call"),
    "structured_outputs, an argument": _structured(
        "json", response_mode="tool_call", tool_payload_key="n"
    ),
    **{f"string_match, {mode}": _matching(mode)
       for mode in ("boxed", "final_answer", "last_line", "full_response")},
    **{f"mcqa, {mode}": _choosing(mode)
       for mode in ("strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon",
                    "lenient_answer_colon_md")},
    "mcqa, a pattern": _choosing(
        "lenient_boxed", template_metadata={"output_regex": ["(a+)+$", r"Answer: (\w)|(x)"]}
    ),
    "sql": Case(
        lambda: SqlEnvironment(workers=1, verdict_timeout_s=1.0),
        {"gold_sql": "SELECT x FROM t", "setup_sql": _SCRIPT},
        "query",
        "sql",
    ),
    "function_calling": Case(
        FunctionCallingEnvironment,
        {"expected_answers": [{"name": "f", "arguments": {"n": 1}}]},
    ),
    "function_calling, an action": Case(
        FunctionCallingEnvironment,
        {"expected_action": {"type": "function_call", "name": "f", "arguments": {"n": 1.5}}},
    ),
    "calendar": Case(
        CalendarEnvironment,
        {"exp_cal_state": {"0": {"duration": 60, "constraint": "at 12pm", "min_time": "10:00",
                                 "max_time": "16:00"}}},
    ),
    "instruction_following": Case(
        InstructionFollowingEnvironment,
        {"instruction_id_list": [*INSTRUCTIONS], "kwargs": [_ARGUMENTS for _ in INSTRUCTIONS]},
        frames=["{}"],
        longest=20_000,  # of the longer ones each takes seconds
    ),
    "workplace": Case(
        WorkplaceEnvironment,
        {"ground_truth": [{"name": "email_delete_email", "arguments": {"email_id": "00000001"}}]},
        "calendar_create_event",
        "duration",
    ),
}  # fmt: skip


# Some of these answers take seconds of an idle machine.
_PATIENT_S = 300.0


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CASES)
async def test_whatever_was_answered_gets_a_verdict(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What runs away is ended by its processor time, which a busy machine may give late.
    monkeypatch.setattr("gymmesh_resource.workers.answer_work.PATIENCE", 2 * _PATIENT_S)
    case = CASES[name]
    own = task(**case.row)
    own.params.CopyFrom(params_from_json({"input": "", "tools": _TOOLS}))
    async with served(case.make(), verify_timeout_s=_PATIENT_S) as mesh:
        session = await mesh.create(own)
        for why, items in _transcripts(case):
            verification = await _verify(mesh, session.session_id, own, items, why)
            assert verification.status == rollout_pb2.VERIFICATION_STATUS_VERIFIED, why
            assert 0.0 <= verification.reward <= 1.0, why


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text()
    | st.integers(-(10**300), 10**300) | st.sampled_from([10**400, -(10**400), "\ud800", 2**64]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.sampled_from(["n", "s", "event_id", "duration", "start_time", "\ud800"]),
                      inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
_QUICK = ["function_calling", "function_calling, an action", "calendar", "string_match, boxed",
          "mcqa, lenient_boxed", "workplace"]  # fmt: skip


@pytest.mark.parametrize("name", _QUICK)
def test_whatever_is_generated_gets_a_verdict(name: str) -> None:
    case = CASES[name]
    own = task(**case.row)
    own.params.CopyFrom(params_from_json({"input": "", "tools": _TOOLS}))

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(_JSON, max_size=3))
    def judged(values: list[Any]) -> None:
        written = [json.dumps(value) for value in values]
        items = [said(f"Answer: \\boxed{{{text}}}") for text in written]
        items += [call(case.tool, text, str(n)) for n, text in enumerate(written)]
        asyncio.run(one(items))

    async def one(items: list[Any]) -> None:
        async with served(case.make()) as mesh:
            verification = await _verify(mesh, "", own, items, repr(items))
            assert verification.status == rollout_pb2.VERIFICATION_STATUS_VERIFIED

    judged()


def _transcripts(case: Case) -> Iterable[tuple[str, list[responses_pb2.Item]]]:
    return transcripts(case.tool, case.argument, case.frames, case.longest).items()


async def _verify(mesh: Any, session: str, own: Any, items: Any, why: str) -> Any:
    try:
        return await mesh.verify(session, own, items, timeout=_PATIENT_S)
    except Exception as error:
        raise AssertionError(f"{why}: {error}") from error


_VALUES = ["", " ", "\ud800", "\x00", "9" * 5_000, "-1", "9999-12-31 23:59:59", "0001-01-01",
           "2023-12-01T10:00:00+99:99", "2023-12-01 10:00:00", "00000001", "x" * 100_000, "%s{}",
           10**400, -(10**18), 2**63, 0, True, None, 1e308, [], {}, [[]] * 100]  # fmt: skip


async def test_every_tool_of_the_office_takes_odd_arguments() -> None:
    environment = WorkplaceEnvironment()
    own = task(**CASES["workplace"].row)
    async with served(environment) as mesh:
        session = await mesh.create(own)
        for tool in session.tools:
            schema = json.loads(tool.function.parameters_json)
            names = schema["properties"]
            good = {name: _fitting(part) for name, part in names.items()}
            items = [call(tool.function.name, json.dumps(good), "good")]
            for name in names:
                items += [
                    call(tool.function.name, json.dumps(good | {name: value}), f"{name}{n}")
                    for n, value in enumerate(_VALUES)
                ]
            verification = await _verify(mesh, session.session_id, own, items, tool.function.name)
            assert verification.status == rollout_pb2.VERIFICATION_STATUS_VERIFIED
            for item in items:
                made = item.function_call
                answer = await mesh.call(session.session_id, made.name, made.arguments)
                assert answer.outcome != rollout_pb2.TOOL_OUTCOME_UNSPECIFIED


def _fitting(schema: dict[str, Any]) -> Any:
    """A value that a parameter's schema allows, such as the tools know."""
    if "enum" in schema:
        return schema["enum"][0]
    kinds = str(schema)
    return 1 if "integer" in kinds and "string" not in kinds else "2023-12-01 10:00:00"
