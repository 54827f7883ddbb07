"""TRL's environments without TRL: called as its loop calls them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import UserError
from gymmesh_resource import Environment, Pending, Rollout, Session, Task, tool
from gymmesh_responses import items_to_list, tool_from_json
from gymmesh_trainers.trl.environment import TrlEnvironments
from gymmesh_trainers.trl.tools import schema_of, tool_method, unsaid
from gymmesh_trainers.trl.transcript import CalledTool, transcript_of
from tests.unit.trainers.environments import Sums, rows

TOKENIZER = SimpleNamespace(eos_token_id=2, pad_token_id=0)


def said(text: str, *calls: tuple[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"type": "function", "function": {"name": name, "arguments": arguments}}
            for name, arguments in calls
        ]
    return message


def answered(name: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "name": name, "content": text}


def test_a_rollout_as_trl_drives_it() -> None:
    with TrlEnvironments(Sums(), rows(2), TOKENIZER) as environments:
        assert environments.rows[1] == {
            "prompt": [{"role": "user", "content": "What is 1 + 1?"}],
            "task_id": "t1",
            "environment": "sums",
        }
        made = [environments() for _ in range(2)]
        for one in made:
            assert one.reset(**environments.rows[1]) is None
        add: Callable[..., str] = made[0].add  # type: ignore[attr-defined]  # a tool of Sums
        assert add(left=1, right=1) == "2"
        assert "right" in add(left=1)  # the environment itself says what is wrong
        call = {"left": 1, "right": 1}
        completions = [
            [said("", ("add", call), ("add", {"left": 1})), answered("add", "2"),
             answered("add", "…"), said("2")],
            [said("3")],
        ]  # fmt: skip
        rewards = environments.reward(
            completions=completions, completion_ids=[[5, 2], [5]], environments=made
        )
        assert rewards == [1.0, 0.0]
        assert [one.stop_reason for one in environments.outcomes] == [
            pb.STOP_REASON_MODEL_FINISHED,
            pb.STOP_REASON_MAX_OUTPUT_TOKENS,
        ]
        # Of other environments it says nothing.
        assert environments.reward([[said("2")]], [[2]], [object()]) == [None]
        assert environments.counts["rollouts"] == 2
        with pytest.raises(UserError, match="task_id: 'other' is not one of the tasks"):
            made[0].reset(task_id="other")


class Moody(Environment[None]):
    """Judges later, or breaks, or ends the episode."""

    @tool
    def leave(self, session: Session[None]) -> str:
        """Leave."""
        session.finish()
        return "bye"

    @tool
    def fall(self, session: Session[None]) -> str:
        """Fall."""
        raise RuntimeError("down")

    async def verify(self, session: Session[None], rollout: Rollout) -> float | Pending:
        return Pending("later") if rollout.answer == "later" else 0.5


@pytest.fixture
def moody() -> Iterator[TrlEnvironments]:
    task = {"task_id": "a", "prompt": "Go."}
    with TrlEnvironments(Moody, [task], TOKENIZER) as environments:
        yield environments


def test_no_reward_is_neither_zero_nor_silent(moody: TrlEnvironments) -> None:
    made: list[Any] = [moody() for _ in range(3)]
    for one in made:
        one.reset(**moody.rows[0])
    with pytest.raises(Exception, match="did not answer"):
        made[0].fall()
    with pytest.raises(Exception, match="is closed"):
        made[0].leave()
    assert made[1].leave() == "bye"
    with pytest.raises(Exception, match="is over"):
        made[1].leave()
    completions = [
        [said("", ("fall", {}))],
        [said("", ("leave", {})), answered("leave", "bye"), said("later")],
        [said("later")],
    ]
    assert moody.reward(completions, [[2]] * 3, made) == [None, 0.5, None]
    failed, left, later = moody.outcomes
    assert failed.failure is not None
    assert "down" in failed.why
    assert left.stop_reason == pb.STOP_REASON_ENVIRONMENT_DONE
    assert later.failure is None
    assert (later.why, later.reward) == ("", None)
    assert dict(moody.counts) == {"rollouts": 3, "failed": 1, "unscored": 1, "after_done": 1}


class Turns(Environment[None]):
    """Takes turns."""

    multi_turn = True

    async def verify(self, session: Session[None], rollout: Rollout) -> float:
        return 0.0

    async def next_turn(self, session: Session[None], items: Any) -> Any:
        raise AssertionError


def test_what_trl_has_no_room_for_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="'turns' takes turns"):
        TrlEnvironments(Turns, [], TOKENIZER)
    own = [{"type": "function", "name": "x", "parameters": {}}]
    for row, why in (
        ({"prompt": "a", "environment": "shop"}, "belongs to environment 'shop'"),
        (
            {"responses_create_params": {"input": [{"role": "user", "content": []}]}},
            "text messages",
        ),
        ({"responses_create_params": {"input": "a", "tools": own}}, "has its own tools"),
    ):
        with pytest.raises(UserError, match=why):
            TrlEnvironments(Sums, [row], TOKENIZER)


def function(parameters: Any, name: str = "look", description: str = "Look.") -> responses_pb2.Tool:
    document = {
        "type": "function", "name": name, "description": description, "parameters": parameters,
    }  # fmt: skip
    return tool_from_json(json.dumps(document).encode())


def test_a_method_says_what_the_schema_says() -> None:
    schema = schema_of(
        function(
            {
                "type": "object",
                "properties": {
                    "where": {"enum": ["up", "down"], "type": "string", "description": "A\n way."},
                    "far": {"type": ["integer", "null"]},
                    "at": {"type": "array", "items": {"type": "number"}},
                    "odd": {"type": "object", "properties": {"x": {"type": "string"}}},
                },
                "required": ["where", "at"],
            }
        )
    )
    seen: list[Any] = []
    method = tool_method(schema, lambda of, name, arguments: seen.append((of, name, arguments)))
    holder = type("Holder", (), {"look": method})()
    signature = inspect.signature(holder.look)
    assert list(signature.parameters) == ["where", "far", "at", "odd"]
    assert signature.parameters["where"].annotation == Literal["up", "down"]
    assert signature.parameters["where"].default is inspect.Parameter.empty
    assert signature.parameters["far"].annotation == int | None
    assert signature.parameters["far"].default is None
    assert signature.parameters["at"].annotation == list[float]
    assert signature.parameters["odd"].annotation is dict
    assert "    where: A way." in (holder.look.__doc__ or "")
    holder.look(where="up", self="odd", unknown=1)  # whatever the model writes comes through
    assert seen == [(holder, "look", {"where": "up", "self": "odd", "unknown": 1})]


@pytest.mark.parametrize("name", ["reset", "get_reward", "_hidden"])
def test_names_that_trl_takes_for_its_own_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="TRL does not support this tool name"):
        schema_of(function({}, name))


def test_what_a_schema_loses_is_named() -> None:
    properties = {"n": {"type": "integer", "minimum": 1, "description": "how  many", "title": "N"}}
    schema = schema_of(function({"type": "object", "properties": properties}))
    shown = {
        "description": "Look.",
        "parameters": {
            "type": "object",
            "properties": {"n": {"type": "integer", "description": "how many"}},
        },
    }
    assert unsaid(schema, shown) == ["parameters.properties.n.minimum"]
    shown["description"] = ""
    assert unsaid(schema, shown) == ["description", "parameters.properties.n.minimum"]


def test_stop_reasons() -> None:
    called = [CalledTool("add", "call_1")]
    calls = said("", ("add", {}))
    reason = {
        pb.STOP_REASON_MAX_STEPS: ([calls], [], False),  # TRL called no more tools
        pb.STOP_REASON_MAX_OUTPUT_TOKENS: ([calls], called, False),  # it took the answer back
        pb.STOP_REASON_MODEL_FINISHED: ([calls, answered("add", "2"), said("2")], called, False),
    }
    for wanted, (messages, known, cut) in reason.items():
        assert transcript_of(messages, known, cut_short=cut).stop_reason == wanted
    found = transcript_of([calls, answered("add", "2")], called, cut_short=False)
    assert found.stop_reason == pb.STOP_REASON_MAX_OUTPUT_TOKENS  # nothing of the next answer


def test_a_call_that_did_not_reach_the_environment_ends_no_episode() -> None:
    """The model finishes with arguments that are no object, which TRL answers, and then rightly;
    or it calls, before the environment's first tool, another one in vain.
    """
    called = [CalledTool("finish", "call_1", done=True)]
    unreached: list[tuple[str, Any]] = [("finish", [1]), ("add", {})]
    for first in unreached:
        messages = [
            said("", first),
            answered(first[0], "no"),
            said("", ("finish", {"n": 2})),
            answered("finish", "done"),
            said("Bye."),
        ]
        found = transcript_of(messages, called, cut_short=False)
        assert found.stop_reason == pb.STOP_REASON_ENVIRONMENT_DONE
        assert (len(found.items), found.after_done) == (4, 1)
        assert found.items[2].function_call.call_id == "call_1"
    later = [CalledTool("add", "call_1"), CalledTool("finish", "call_2", done=True)]
    messages = [
        said("", ("finish", [1])),
        answered("finish", "no"),
        said("", ("add", {})),
        answered("add", "2"),
        said("", ("finish", {})),
        answered("finish", "done"),
    ]
    found = transcript_of(messages, later, cut_short=False)
    assert (len(found.items), found.after_done) == (6, 0)
    ids = [one.function_call.call_id for one in found.items if one.HasField("function_call")]
    assert ids == ["trl-0-0", "call_1", "call_2"]


NAMES = st.sampled_from(["add", "buy"])


@given(st.lists(st.lists(NAMES, max_size=3), max_size=4))
def test_every_answer_stands_behind_its_call(rounds: list[list[str]]) -> None:
    """Outputs have the ids of their calls; only calls of the environment's have its ids."""
    messages: list[dict[str, Any]] = []
    called: list[CalledTool] = []
    for names in rounds:
        messages.append(said("", *((name, {"n": len(called)}) for name in names)))
        for name in names:
            messages.append(answered(name, f"{name} {len(messages)}"))
            if name == "add":
                called.append(CalledTool("add", f"call_{len(called) + 1}"))
    messages.append(said("done"))
    found = transcript_of(messages, called, cut_short=False)
    items: list[Any] = items_to_list(found.items)
    calls = [one for one in items if one["type"] == "function_call"]
    outputs = [one for one in items if one["type"] == "function_call_output"]
    assert [one["name"] for one in calls] == [name for names in rounds for name in names]
    ids = [one["call_id"] for one in calls]
    assert len(set(ids)) == len(ids)
    assert [one["call_id"] for one in calls if one["name"] == "add"] == [
        one.call_id for one in called
    ]
    assert sorted(one["call_id"] for one in outputs) == sorted(ids)
    names_of = dict(zip(ids, (one["name"] for one in calls), strict=True))
    assert all(one["output"].split()[0] == names_of[one["call_id"]] for one in outputs)


def test_a_task_object_works_as_a_row() -> None:
    with TrlEnvironments(Sums(), [Task.of(rows(1)[0])], TOKENIZER) as environments:
        assert [row["task_id"] for row in environments.rows] == ["t0"]
