"""The calendar's verdict: a table of hard cases, recorded rewards, hostile text, served."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource import Rollout, Task, TaskInvalid
from gymmesh_resource.environments.calendar import CalendarEnvironment
from gymmesh_resource.environments.calendar.clock import read_time
from gymmesh_resource.environments.calendar.listing import first_list_text
from gymmesh_resource.environments.calendar.verdict import (
    NEMO,
    RIGHT,
    CalendarReading,
    judge,
    read_expected,
)
from gymmesh_resource.registry import example_tasks
from gymmesh_responses import dumps, items_from_json, new_message
from tests.unit.resource.served import served

CASES: list[dict[str, Any]] = yaml.load(
    Path(__file__).with_name("verdicts.yaml").read_text("utf-8"), yaml.CSafeLoader
)
# The expression by which the format defines the list; exponential for hostile text.
BLOCK = r"\{[^}]*\}"
RUN = rf"(?:[^\[\]]|{BLOCK})*"
LIST = re.compile(rf"\[{RUN}\{{{RUN}\}}{RUN}\]", re.DOTALL)


def state(expected: dict[Any, list[Any]]) -> dict[str, Any]:
    return {
        str(key): {
            "event_id": key,
            "duration": duration,
            "constraint": constraint,
            "min_time": "10:00",
            "max_time": "16:00",
        }
        for key, (duration, constraint) in expected.items()
    }


def answer(case: dict[str, Any]) -> str:
    if "text" in case:
        return str(case["text"])
    keys = ("event_id", "start_time", "duration")
    return json.dumps([dict(zip(keys, event, strict=True)) for event in case["events"]])


@pytest.mark.parametrize("reading", [RIGHT, NEMO], ids=["right", "nemo"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"])
def test_case(case: dict[str, Any], reading: CalendarReading) -> None:
    wanted = case.get("nemo", case) if reading is NEMO else case
    verdict = judge(answer(case), read_expected(state(case["expected"]), reading), reading)
    assert (verdict.reward, verdict.reason) == (wanted["reward"], wanted["reason"])


def test_the_table_is_large() -> None:
    assert len(CASES) >= 40


@given(st.text(alphabet='[]{}a",', max_size=14))
def test_the_list_is_what_the_expression_finds(text: str) -> None:
    match = LIST.search(text)
    assert first_list_text(text) == (match.group() if match else None)


@pytest.mark.parametrize("unit", ["[{", "{", "[", "[{}", "[{}]{", "{[", "}", "[{]}"])
def test_hostile_text_is_judged(unit: str) -> None:
    # Linear: the expression itself would not end for most of these.
    verdict = judge(unit * 50_000, read_expected(state({0: [60, None]})))
    assert verdict.reward == 0.0


@pytest.mark.parametrize(
    "text",
    [
        '[{"event_id": ' * 5_000,
        '[{"a": ' + '{"a": ' * 20_000 + "1" + "}" * 20_000 + "}]",
        '[{"event_id": 0, "start_time": "10:00", "duration": ' + "9" * 4_000 + "}]",
        '[{"event_id": 0, "start_time": "10:00", "duration": ' + "9" * 5_000 + "}]",
        '[{"event_id": 0, "start_time": "10:00", "duration": NaN}]',
        '[{"event_id": 0, "start_time": "10:00", "duration": Infinity}]',
        '[{"event_id": [], "start_time": "10:00", "duration": 60}]',
        '[{"event_id": 0, "start_time": "\ud800", "duration": 60}]',
    ],
    ids=["cut", "deep", "digits", "more digits", "nan", "infinite", "list as id", "surrogate"],
)
def test_odd_text_is_judged(text: str) -> None:
    assert judge(text, read_expected(state({0: [60, None]}))).reward == 0.0


def test_many_events_of_one_id_are_judged() -> None:
    events = [{"event_id": 0, "start_time": "10:00", "duration": n} for n in range(1_500)]
    assert judge(json.dumps(events), read_expected(state({0: [60, None]}))).reward == 0.0


@given(st.integers(0, 23), st.integers(0, 59))
def test_times_of_both_clocks_agree(hour: int, minute: int) -> None:
    half = "am" if hour < 12 else "pm"
    assert read_time(f"{hour}:{minute:02d}") == hour * 60 + minute
    assert read_time(f"{(hour - 1) % 12 + 1}:{minute:02d}{half}") == hour * 60 + minute


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({}, "exp_cal_state"),
        ({"exp_cal_state": []}, "exp_cal_state"),
        ({"exp_cal_state": {"0": 1}}, "exp_cal_state.0"),
        ({"exp_cal_state": state({0: ["60", None]})}, "exp_cal_state.0.duration"),
        ({"exp_cal_state": state({0: [60, 5]})}, "exp_cal_state.0.constraint"),
        ({"exp_cal_state": state({0: [60, "at tea time"]})}, "exp_cal_state.0.constraint"),
        ({"exp_cal_state": state({0: [60, "between 1pm"]})}, "exp_cal_state.0.constraint"),
        ({"exp_cal_state": state({0: [60, "during lunch"]})}, "exp_cal_state.0.constraint"),
        ({"exp_cal_state": {"0": {"duration": 1}}}, "exp_cal_state.0.constraint"),
        (
            {"exp_cal_state": {"0": {"duration": 1, "constraint": None}}},
            "exp_cal_state.0.min_time",
        ),
    ],
)
def test_a_malformed_row_is_named(payload: dict[str, Any], field: str) -> None:
    with pytest.raises(TaskInvalid) as caught:
        CalendarEnvironment().check_task(make_task(payload))
    assert caught.value.field == field


@pytest.mark.golden
def test_agrees_with_recorded_rewards(golden_dir: Path) -> None:
    expected = {
        conversation(row): row["exp_cal_state"]
        for row in read(golden_dir / "calendar.example.jsonl")
    }
    rollouts = read(golden_dir / "calendar.example_rollouts.jsonl")
    assert {rollout["reward"] for rollout in rollouts} == {0.0, 1.0}
    environment = CalendarEnvironment()
    environment.compat = "nemo"

    for rollout in rollouts:
        task = make_task({"exp_cal_state": expected[conversation(rollout)]})
        environment.check_task(task)
        items = items_from_json(dumps(rollout["response"]["output"]))
        verdict = environment.verify(
            None,  # type: ignore[arg-type]  # it does not look at the session
            Rollout(task, items, rollout_pb2.STOP_REASON_MODEL_FINISHED),
        )
        assert verdict.reward == rollout["reward"], verdict.evidence


async def test_served() -> None:
    environment = CalendarEnvironment()
    tasks = example_tasks(environment, "e")
    assert len(tasks) >= 5
    right = '[{"event_id": 0, "event_name": "Team lunch", "start_time": "12:00", "duration": 60}]'
    async with served(environment) as mesh:
        sessions = [await mesh.create(task) for task in tasks]
        said = new_message("assistant", right)
        thinking = items_from_json(b'[{"type": "reasoning", "summary": []}]')
        assert (await mesh.verify(sessions[0].session_id, tasks[0], [said])).reward == 1.0
        # Cut off in the middle of a further thought: what was said before is no answer.
        late = await mesh.verify(sessions[0].session_id, tasks[0], [said, *thinking])
        assert late.reward == 0.0
        assert (await mesh.verify(sessions[0].session_id, tasks[0], [])).reward == 0.0


def test_what_is_left_out_is_told() -> None:
    task = make_task({"exp_cal_state": state({0: [60, "during lunch"]}), "compat": "nemo"})
    rollout = Rollout(task, [new_message("assistant", "[]")], rollout_pb2.STOP_REASON_MAX_STEPS)
    verdict = CalendarEnvironment().verify(None, rollout)  # type: ignore[arg-type]  # as above
    assert verdict.evidence["constraints_not_understood"] == ["0"]


def make_task(payload: dict[str, Any]) -> Task:
    return Task(rollout_pb2.Task(task_id="t", payload_json=dumps(payload)))


def conversation(row: dict[str, Any]) -> str:
    """What was said by people and models, in the same words in a row and in its rollout."""
    said = row["responses_create_params"]["input"]
    parts = [
        [part.get("text") for part in item["content"]]
        if isinstance(item["content"], list)
        else item["content"]
        for item in said
        if item.get("role") == "user"
    ]
    return json.dumps(parts)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
