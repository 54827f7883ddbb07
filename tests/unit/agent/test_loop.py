from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.loop import Action, CallModel, LoopLimits, RunTools, Stop, TakeTurn, ToolLoop
from tests.unit.agent.servicers import call, calls, says

Stops = rollout_pb2.StopReason


def loop(multi_turn: bool = False, **limits: int) -> ToolLoop:
    return ToolLoop(LoopLimits(**limits), multi_turn=multi_turn)


def cut(reason: str) -> dict[str, Any]:
    return {"status": "incomplete", "incomplete_details": {"reason": reason}}


def test_first_the_model_is_called() -> None:
    assert loop().opened() == CallModel()


def test_answer_without_calls_finishes() -> None:
    machine = loop()
    machine.opened()
    assert machine.model_answered(says("4"), 1) == Stop(Stops.STOP_REASON_MODEL_FINISHED)


def test_answer_without_calls_gives_the_environment_its_turn() -> None:
    machine = loop(multi_turn=True)
    machine.opened()
    assert machine.model_answered(says("e4"), 1) == TakeTurn()
    assert machine.turn_taken(done=False) == CallModel()
    machine.model_answered(says("d4"), 1)
    assert machine.turn_taken(done=True) == Stop(Stops.STOP_REASON_ENVIRONMENT_DONE)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("max_output_tokens", Stops.STOP_REASON_MAX_OUTPUT_TOKENS),
        ("content_filter", Stops.STOP_REASON_CONTENT_FILTER),
        ("aborted", Stops.STOP_REASON_ABORTED),
        ("something_new", Stops.STOP_REASON_AGENT_RULE),
    ],
)
def test_cut_answer_stops_and_its_calls_are_not_run(reason: str, stop: int) -> None:
    machine = loop(multi_turn=True)
    machine.opened()
    action = machine.model_answered(calls(call("add"), **cut(reason)), 1)
    assert isinstance(action, Stop)
    assert action.reason == stop
    assert (reason in action.detail) == (stop == Stops.STOP_REASON_AGENT_RULE)


def test_context_exceeded_stops() -> None:
    machine = loop()
    machine.opened()
    assert machine.context_exceeded() == Stop(Stops.STOP_REASON_CONTEXT_LENGTH)


def test_tools_of_the_last_step_are_run() -> None:
    machine = loop(max_steps=1)
    machine.opened()
    assert isinstance(machine.model_answered(calls(call("add")), 1), RunTools)
    assert machine.tools_answered([False]) == Stop(Stops.STOP_REASON_MAX_STEPS)


def test_finishing_with_the_last_step_is_finishing() -> None:
    machine = loop(max_steps=1, max_total_output_tokens=1)
    machine.opened()
    assert machine.model_answered(says("4"), 9) == Stop(Stops.STOP_REASON_MODEL_FINISHED)


def test_token_budget_stops_before_the_next_call() -> None:
    machine = loop(max_total_output_tokens=10)
    machine.opened()
    machine.model_answered(calls(call("add")), 9)
    assert machine.tools_answered([False]) == CallModel()
    machine.model_answered(calls(call("add")), 1)
    assert machine.tools_answered([False]) == Stop(Stops.STOP_REASON_MAX_OUTPUT_TOKENS)


def test_tool_that_ends_the_episode_wins_over_limits() -> None:
    machine = loop(max_steps=1)
    machine.opened()
    machine.model_answered(calls(call("add"), call("win", call_id="f2")), 1)
    assert machine.tools_answered([False, True]) == Stop(Stops.STOP_REASON_ENVIRONMENT_DONE)


def test_reports_that_were_not_asked_for_are_refused() -> None:
    machine = loop()
    with pytest.raises(RuntimeError, match="NEW"):
        machine.turn_taken(done=True)
    machine.opened()
    machine.model_answered(calls(call("add")), 1)
    with pytest.raises(RuntimeError, match="the number of tool calls in the model's answer is 1"):
        machine.tools_answered([False, False])


@given(
    data=st.data(),
    multi_turn=st.booleans(),
    max_steps=st.integers(1, 6),
    budget=st.none() | st.integers(1, 40),
)
def test_any_course_stops_once_within_its_limits(
    data: st.DataObject, multi_turn: bool, max_steps: int, budget: int | None
) -> None:
    machine = ToolLoop(LoopLimits(max_steps, budget), multi_turn=multi_turn)
    action: Action = machine.opened()
    model_calls = spent = 0
    for _ in range(3 * max_steps + 1):
        if isinstance(action, Stop):
            break
        if isinstance(action, CallModel):
            assert budget is None or spent < budget
            model_calls += 1
            if data.draw(st.booleans(), "context exceeded") and data.draw(st.booleans()):
                action = machine.context_exceeded()
                continue
            names = data.draw(st.lists(st.sampled_from("ab"), max_size=3), "calls")
            functions = [call(name, call_id=f"f{i}") for i, name in enumerate(names)]
            more: dict[str, Any] = {}
            if data.draw(st.integers(0, 9), "cut short") == 0:
                more = cut("max_output_tokens")
            tokens = data.draw(st.integers(0, 20), "tokens")
            spent += tokens
            action = machine.model_answered(calls(*functions, **more), tokens)
            if isinstance(action, RunTools):
                assert [one.name for one in action.calls] == names
        elif isinstance(action, RunTools):
            done = data.draw(st.lists(st.booleans(), min_size=len(action.calls)), "done")
            action = machine.tools_answered(done[: len(action.calls)])
        else:
            assert multi_turn
            action = machine.turn_taken(done=data.draw(st.booleans(), "episode over"))
    assert isinstance(action, Stop)
    assert action.reason != Stops.STOP_REASON_UNSPECIFIED
    assert model_calls <= max_steps
    reports: list[Callable[[], Action]] = [
        machine.opened,
        machine.context_exceeded,
        lambda: machine.model_answered(says(""), 0),
        lambda: machine.tools_answered([]),
        lambda: machine.turn_taken(done=True),
    ]
    for report in reports:
        with pytest.raises(RuntimeError):
            report()
