"""The comparison of calls: tables of hard cases, recorded rewards, and the environment served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource import Rollout, Task, TaskInvalid
from gymmesh_resource.environments.function_calling import FunctionCallingEnvironment
from gymmesh_resource.environments.function_calling.comparison import (
    Likeness,
    difference,
    equal,
    equal_text,
)
from gymmesh_resource.environments.function_calling.free_text import says_the_same
from gymmesh_resource.environments.function_calling.verdict import (
    NamedCall,
    Rules,
    judge_action,
    judge_calls,
    read_expected,
)
from gymmesh_resource.registry import example_tasks
from gymmesh_responses import dumps, items_from_json, new_message, params_from_json
from tests.unit.resource.served import served

HERE = Path(__file__).parent
CALLS: list[dict[str, Any]] = yaml.load((HERE / "calls.yaml").read_text("utf-8"), yaml.CSafeLoader)
ACTIONS: list[dict[str, Any]] = yaml.load(
    (HERE / "actions.yaml").read_text("utf-8"), yaml.CSafeLoader
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda part: st.lists(part) | st.dictionaries(st.text(), part),
    max_leaves=10,
)


def calls(written: list[list[Any]]) -> list[NamedCall]:
    return [NamedCall(name, arguments) for name, arguments in written]


@pytest.mark.parametrize("compat", ["", "nemo"])
@pytest.mark.parametrize("case", CALLS, ids=lambda case: case["why"])
def test_calls(case: dict[str, Any], compat: str) -> None:
    nemo: dict[str, Any] = {"extra_arguments": "allowed", "same": equal} if compat else {}
    rules = Rules(**nemo | case.get("rules", {}))
    reward = case.get("nemo", case["reward"]) if compat else case["reward"]
    assert judge_calls(calls(case["expected"]), calls(case["made"]), rules).reward == reward


@pytest.mark.parametrize("compat", ["", "nemo"])
@pytest.mark.parametrize("case", ACTIONS, ids=lambda case: case["why"])
def test_actions(case: dict[str, Any], compat: str) -> None:
    one = [] if case.get("expected") is None else [case["expected"]]
    expected = calls(case.get("batch", one))
    ignored = case.get("ignored", ())
    rules = Rules(same=Likeness() if compat else equal_text, ignored=ignored)
    verdict = judge_action(expected, calls(case["made"]), said=case.get("said", False), rules=rules)
    reward = case.get("nemo", case["reward"]) if compat else case["reward"]
    assert verdict.reward == reward, verdict.category


def test_the_tables_are_large() -> None:
    assert len(CALLS) >= 40
    assert len(CALLS) + len(ACTIONS) >= 60


@given(JSON)
def test_a_value_is_the_same_as_itself_and_alike(value: Any) -> None:
    again = json.loads(json.dumps(value))
    for rule in (equal, equal_text, Likeness()):
        assert difference(value, again, rule) is None


@given(JSON, JSON)
def test_sameness_has_no_direction(left: Any, right: Any) -> None:
    for rule in (equal, equal_text):
        there, back = difference(left, right, rule), difference(right, left, rule)
        assert (there is None) == (back is None)


@given(st.lists(st.dictionaries(st.sampled_from("ab"), st.integers(0, 1)), max_size=5), st.data())
def test_calls_match_themselves_in_any_order(arguments: list[Any], data: st.DataObject) -> None:
    expected = [NamedCall("f", part) for part in arguments]
    made = data.draw(st.permutations(expected))
    assert judge_calls(expected, made, Rules()).reward == 1.0


def test_values_of_great_depth_and_size_are_judged() -> None:
    deep: Any = 1
    for _ in range(50_000):
        deep = [deep]
    assert difference(deep, deep) is None
    assert difference({"a": 1}, {"a": deep}) == "type"
    assert difference({"a": 10**400}, {"a": 0.5}, Likeness()) == "value"
    assert judge_calls(calls([["f", {}]]), calls([["f", {}]] * 20_000), Rules()).reward == 0.0


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({}, "expected_answers"),
        ({"expected_answers": {}}, "expected_answers"),
        ({"expected_answers": "{"}, "expected_answers"),
        ({"expected_answers": [1]}, "expected_answers[0]"),
        ({"expected_answers": [{"arguments": {}}]}, "expected_answers[0].name"),
        ({"expected_answers": [{"name": "f", "arguments": []}]}, "expected_answers[0].arguments"),
        ({"expected_answers": [{"name": "f", "arguments": "{"}]}, "expected_answers[0].arguments"),
        ({"expected_answers": [], "free_text_arguments": "u"}, "free_text_arguments"),
        ({"expected_action": []}, "expected_action"),
        ({"expected_action": {"type": "x"}}, "expected_action.type"),
        ({"expected_action": {"type": "function_call"}}, "expected_action.name"),
        ({"expected_action": {"type": "function_call_batch"}}, "expected_action.calls"),
        (
            {"expected_action": {"type": "function_call_batch", "calls": []}},
            "expected_action.calls",
        ),
        (
            {"expected_action": {"type": "function_call_batch", "calls": [{"name": 1}]}},
            "expected_action.calls[0].name",
        ),
        ({"expected_action": {"type": "function_call", "name": "bash"}}, "expected_action"),
        ({"expected_answers": [{"name": "f"}, {"name": "g"}]}, "expected_answers"),
        ({"expected_action": {"type": "message"}, "harness": "x"}, "harness"),
        ({"expected_action": {"type": "message"}, "pivot_tags": []}, "pivot_tags"),
        ({"expected_answers": [], "tool_answers": {"f": 1}}, "tool_answers"),
    ],
)
def test_a_malformed_row_is_named(payload: dict[str, Any], field: str) -> None:
    with pytest.raises(TaskInvalid) as caught:
        FunctionCallingEnvironment().check_task(make_task(payload))
    assert caught.value.field == field


FLIGHT: dict[str, Any] = {
    "name": "fly",
    "arguments": {"to": "New York", "seats": 1},
    "accepted": {"to": ["New York", "NYC"]},
    "optional": ["seats"],
}


@pytest.mark.parametrize(
    ("arguments", "reward"),
    [
        ({"to": "New York", "seats": 1}, 1.0),
        ({"to": "NYC"}, 1.0),
        ({"to": "NY", "seats": 1}, 0.0),
        ({"to": "NYC", "seats": 2}, 0.0),
        ({"seats": 1}, 0.0),
        ({"to": "NYC", "class": "first"}, 0.0),
        ({"to": ["New York", "NYC"]}, 0.0),
    ],
)
def test_an_argument_may_have_several_values_or_be_left_out(
    arguments: dict[str, Any], reward: float
) -> None:
    expected = read_expected([FLIGHT])
    assert judge_calls(expected, [NamedCall("fly", arguments)], Rules()).reward == reward
    filled = Rules(defaults={"fly": {"seats": 4}})
    left_out = judge_calls(expected, [NamedCall("fly", {"to": "NYC"})], filled)
    assert left_out.reward == 1.0


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"accepted": ["NYC"]}, "accepted"),
        ({"accepted": {"to": []}}, "accepted.to"),
        ({"accepted": {"to": ["NYC"]}}, "accepted.to"),
        ({"accepted": {"from": ["NYC"]}}, "accepted.from"),
        ({"optional": "seats"}, "optional"),
        ({"optional": [1]}, "optional"),
    ],
)
def test_what_may_differ_is_checked(more: dict[str, Any], field: str) -> None:
    with pytest.raises(TaskInvalid) as caught:
        read_expected([FLIGHT | more])
    assert caught.value.field == f"expected_answers[0].{field}"


def test_expected_calls_may_be_written_as_text() -> None:
    written = json.dumps([{"name": "f", "arguments": '{"a": 1}'}, {"name": "g"}])
    assert read_expected(written) == [NamedCall("f", {"a": 1}), NamedCall("g", {})]


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        ("Please call me back in the morning.", "Please call me in the morning", True),
        ("Tell the team that the build is red", "Tell the team the build is red", True),
        ("delete the file now", "do not delete the file", False),
        ("New York", "New Jersey", False),
        ("2024-01-05 10:00", "2024-01-05 18:00", False),
        ("meet me at 10:00 in the hall", "meet me at 18:00 in the hall", False),
        ("fly to Rome in the morning", "fly to Oslo in the morning", False),
        ("git push origin main", "git push origin dev", False),
        ("copy the file a.txt to b.txt", "copy the file b.txt to a.txt", False),
        ("send the bill to the client", "pay for the trip with the card", False),
        ("wait for two of the guests", "wait for three of the guests", False),
        ("", "the", False),
        ("After lunch, call the client", "Please call the client after lunch.", True),
        ("I'm at the office and can't talk", "I am at the office and cannot talk", True),
        ("turn the light on", "turn the light off", False),
        ("book a flight from Oslo to Lima", "book a flight from Lima to Oslo", False),
        ("add Bo to the admin group", "remove Bo from the admin group", False),
        ("move the value from -5 to 5", "move the value from 5 to -5", False),
        ("send the file to the US office", "send the file to the us office", False),
        ("is the door open?", "is the door open", False),
    ],
)
def test_free_text_may_be_worded_differently(expected: str, actual: str, same: bool) -> None:
    assert says_the_same(expected, actual) is same
    assert says_the_same(actual, expected) is same


@pytest.mark.parametrize(
    ("changes", "made", "reward"),
    [
        ({}, {"u": "Call me back in the morning"}, 1.0),
        ({}, {"u": "Call me in the morning"}, 0.0),
        ({"free_text_arguments": ["u"]}, {"u": "Call me in the morning"}, 1.0),
        ({"free_text_arguments": ["v"]}, {"u": "Call me in the morning"}, 0.0),
        ({"free_text_arguments": ["u"]}, {"u": "Call me in the morning", "v": 1}, 0.0),
        ({"compat": "nemo"}, {"u": "Call me in the morning"}, 1.0),
        ({"compat": "nemo"}, {"u": "Call the police"}, 1.0),
    ],
)
async def test_a_row_asks_for_similar_texts(
    changes: dict[str, Any], made: dict[str, Any], reward: float
) -> None:
    action = {"type": "function_call", "name": "f",
              "arguments": {"u": "Call me back in the morning"}}  # fmt: skip
    call = {"type": "function_call", "name": "f", "arguments": json.dumps(made), "call_id": "c"}
    async with served(FunctionCallingEnvironment()) as mesh:
        message = make_task({"expected_action": action} | changes).message
        verification = await mesh.verify(
            of=message, transcript=list(items_from_json(dumps([call])))
        )
        assert verification.reward == reward
        assert verification.explanation


async def test_a_key_that_comes_twice_is_not_an_argument() -> None:
    payload = {"expected_answers": [{"name": "f", "arguments": {"u": "c"}}]}
    call = {
        "type": "function_call",
        "name": "f",
        "arguments": '{"u": "k", "u": "c"}',
        "call_id": "c",
    }
    items = list(items_from_json(dumps([call])))
    async with served(FunctionCallingEnvironment()) as mesh:
        right = await mesh.verify(of=make_task(payload).message, transcript=items)
        nemo = await mesh.verify(
            of=make_task(payload | {"compat": "nemo"}).message, transcript=items
        )
    assert (right.reward, nemo.reward) == (0.0, 1.0)
    assert (right.compat, nemo.compat) == ("", "nemo")


async def test_saying_nothing_is_not_declining() -> None:
    message = make_task({"expected_answers": []}).message
    async with served(FunctionCallingEnvironment()) as mesh:
        silent = await mesh.verify(of=message, transcript=[new_message("assistant", " ")])
        spoken = await mesh.verify(of=message, transcript=[new_message("assistant", "Bye!")])
    assert (silent.reward, spoken.reward) == (0.0, 1.0)


@pytest.mark.golden
async def test_agrees_with_recorded_rewards(golden_dir: Path) -> None:
    rows = read(golden_dir / "xlam_fc.example.jsonl")
    expected = {question(row): row["expected_answers"] for row in rows}
    rollouts = read(golden_dir / "xlam_fc.example_rollouts.jsonl")
    assert {rollout["reward"] for rollout in rollouts} == {0.0, 1.0}
    environment = FunctionCallingEnvironment()
    environment.compat = "nemo"

    for rollout in rollouts:
        task = make_task({"expected_answers": expected[question(rollout)]})
        params = rollout["responses_create_params"]
        task.message.params.CopyFrom(params_from_json(dumps(params)))
        environment.check_task(task)
        items = items_from_json(dumps(rollout["response"]["output"]))
        verdict = await environment.verify(
            None,  # type: ignore[arg-type]  # it does not look at the session
            Rollout(task, items, rollout_pb2.STOP_REASON_MODEL_FINISHED),
        )
        assert verdict.reward == rollout["reward"]
        for key in ("num_expected", "num_predicted", "num_correct", "predicted_calls"):
            assert verdict.evidence[key] == rollout[key]


TOOLS = [
    {
        "type": "function",
        "name": "f",
        "parameters": {"type": "object", "properties": {"u": {"default": "c"}}},
    }
]


@pytest.mark.parametrize(
    ("made", "reward"),
    [
        ([{"u": "c"}, {"u": "k"}], 1.0),
        ([{"u": "k"}, {"u": "c"}], 1.0),
        ([{"u": "k"}], 0.0),
        ([{"u": "k"}, {"u": "k"}], 0.0),
        ([{"u": "k"}, {"u": "c"}, {"u": "c"}], 0.0),
    ],
)
async def test_a_batch_of_calls_is_judged_as_one(made: list[Any], reward: float) -> None:
    wanted = [{"type": "function_call", "name": "f", "arguments": text}
              for text in ('{"u": "k"}', '{"u": "c"}')]  # fmt: skip
    action = {"type": "function_call_batch", "calls": wanted}
    items = [
        {"type": "function_call", "name": "f", "arguments": json.dumps(part), "call_id": str(n)}
        for n, part in enumerate(made)
    ]
    async with served(FunctionCallingEnvironment()) as mesh:
        message = make_task({"expected_action": action}).message
        verification = await mesh.verify(of=message, transcript=list(items_from_json(dumps(items))))
        assert verification.reward == reward


@pytest.mark.parametrize(("said", "reward"), [("Sure.", 1.0), ("", 0.0), (" \n\u3000", 0.0)])
async def test_a_blank_message_is_none(said: str, reward: float) -> None:
    wanted = make_task({"expected_action": {"type": "message", "content": ""}}).message
    async with served(FunctionCallingEnvironment()) as mesh:
        verification = await mesh.verify(of=wanted, transcript=[new_message("assistant", said)])
        assert verification.reward == reward


async def test_calls_are_answered_and_the_model_goes_on() -> None:
    async with served(FunctionCallingEnvironment(tool_answer="Noted.")) as mesh:
        message = make_task({"expected_answers": [{"name": "f", "arguments": {}}]}).message
        session = await mesh.create(message)
        answer = await mesh.call(session.session_id, "f", {"u": "k"})
        assert (answer.text, answer.done) == (b"Noted.", False)
        unknown = await mesh.call(session.session_id, "g", {})
        assert unknown.outcome == rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL


@pytest.mark.parametrize(
    ("payload", "end"),
    [
        ({"expected_answers": []}, "first_calls"),
        ({"expected_action": {"type": "message", "content": ""}}, "model"),
    ],
)
async def test_calls_end_the_episode(payload: dict[str, Any], end: Any) -> None:
    async with served(FunctionCallingEnvironment(end=end)) as mesh:
        message = make_task(payload | {"tool_answers": {"f": "7"}}).message
        session = await mesh.create(message)
        answer = await mesh.call(session.session_id, "f", {})
        assert (answer.text, answer.done) == (b"7", True)


@pytest.mark.parametrize(("fill", "reward"), [(True, 1.0), (False, 0.0)])
async def test_defaults_come_from_the_rows_schema(fill: bool, reward: float) -> None:
    payload = {"expected_answers": [{"name": "f", "arguments": {"u": "c"}}]}
    call = {"type": "function_call", "name": "f", "arguments": "", "call_id": "c"}
    async with served(FunctionCallingEnvironment(fill_defaults=fill)) as mesh:
        message = make_task(payload).message
        verification = await mesh.verify(
            of=message, transcript=list(items_from_json(dumps([call])))
        )
        assert verification.reward == reward


async def test_the_example_tasks_are_won_by_their_own_calls() -> None:
    environment = FunctionCallingEnvironment()
    tasks = example_tasks(environment, "e")
    assert len(tasks) >= 5
    async with served(environment) as mesh:
        for task in tasks:
            payload = Task(task).payload
            session = await mesh.create(task)
            wanted = payload.get("expected_answers", [payload.get("expected_action")])
            items = [
                {
                    "type": "function_call",
                    "name": call["name"],
                    "arguments": json.dumps(call["arguments"])
                    if isinstance(call["arguments"], dict)
                    else call["arguments"],
                    "call_id": str(index),
                }
                for index, call in enumerate(wanted)
            ]
            other = {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "x"}
            for transcript, reward in ((items, 1.0), ([other, *items], 0.0)):
                made = [*items_from_json(dumps(transcript)), new_message("assistant", "Done.")]
                verification = await mesh.verify(session.session_id, task, made)
                assert verification.reward == reward


def make_task(payload: dict[str, Any]) -> Task:
    return Task(
        rollout_pb2.Task(
            task_id="t",
            payload_json=dumps(payload),
            params=params_from_json(dumps({"input": "", "tools": TOOLS})),
        )
    )


def question(row: dict[str, Any]) -> str:
    return next(
        str(item["content"])
        for item in row["responses_create_params"]["input"]
        if item["role"] == "user"
    )


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
