"""The ordinary course of a rollout, over every path that the runtime has."""

from __future__ import annotations

import asyncio
import math
from contextlib import aclosing
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_responses import new_message, params_to_dict, text_of
from gymmesh_runtime.errors import MeshError
from tests.integration.agent.words import (
    cut,
    failure_in,
    fixed,
    hang,
    outcomes,
    policy,
    raising,
    stop_of,
    turn,
)
from tests.unit.agent.mesh import BOUND_S, ask, running
from tests.unit.agent.servicers import (
    ScriptedModel,
    Step,
    StreamingModel,
    TinyEnvironment,
    call,
    calls,
    ok,
    reward,
    says,
)
from tests.unit.agent.streams import conversation, kinds, model_calls

Reason = errors_pb2.ErrorReason
Stops = rollout_pb2.StopReason
Outcomes = rollout_pb2.ToolOutcome


async def test_a_rollout_from_prompt_to_reward(path: str) -> None:
    environment = TinyEnvironment(tools={"add": fixed("4")})
    models = policy(calls(call("add", '{"a": 2}')), says("It is 4."))
    config = AgentConfig(
        system_prompt="Use tools.",
        examples=[{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}],
        params={"temperature": 0.1, "top_p": 0.9},
    )
    async with running(path, environment, models, config) as mesh:
        request = ask(params_override_json=b'{"max_output_tokens": 64}')
        events = await mesh.run(request)
    assert kinds(events) == [
        "started",
        "model_call_completed",
        "tool_call_started",
        "tool_call_completed",
        "model_call_completed",
        "verified",
        "completed",
    ]
    started = events[0].started
    assert [text_of(item) for item in started.items] == ["Use tools.", "1+1?", "2", "2+2?"]
    assert started.preamble_items == 3
    params = params_to_dict(started.params)
    assert "input" not in params
    assert (params["temperature"], params["top_p"], params["max_output_tokens"]) == (0.5, 0.9, 64)
    assert [tool["name"] for tool in params["tools"]] == ["add"]
    assert (started.environment, started.environment_version) == ("tiny", "7")
    assert (started.session_id, started.resource_instance_id) == ("s1", "tiny-0")
    assert (started.agent, started.agent_instance_id, started.seed) == (
        "tool_loop",
        "tool_loop-0",
        11,
    )
    assert stop_of(events) == Stops.STOP_REASON_MODEL_FINISHED
    assert events[-2].verified.verification == reward(1.0)
    assert events[-1].completed.counts.output_tokens == 10
    (session,) = environment.created
    assert (session.request_id, session.seed, session.rollout_id) == ("r1/1", 11, "r1")
    assert [one.request_id for one in mesh.model.requests] == ["r1/1/c1", "r1/1/c2"]
    assert [one.call_id for one in mesh.model.requests] == ["c1", "c2"]
    assert [one.rollout_id for one in mesh.model.requests] == ["r1", "r1"]
    assert len({one.seed for one in mesh.model.requests}) == 2
    (judged,) = environment.verified
    assert [item.WhichOneof("kind") for item in judged.transcript] == [
        "function_call",
        "function_call_output",
        "message",
    ]
    assert judged.task == request.task
    assert judged.stop_reason == Stops.STOP_REASON_MODEL_FINISHED


async def test_events_come_as_they_happen(path: str) -> None:
    answered = asyncio.Event()

    async def wait(request: model_pb2.CreateResponseRequest) -> responses_pb2.Response:
        await answered.wait()
        return says("done")

    async with running(path, TinyEnvironment(), policy(wait)) as mesh:
        async with asyncio.timeout(BOUND_S):
            async with aclosing(mesh.agent.RunRollout(ask(), timeout=BOUND_S)) as stream:
                first = await anext(stream)
                assert first.event.WhichOneof("event") == "started"
                answered.set()
                rest = [one.event async for one in stream]
    assert kinds(rest) == ["model_call_completed", "verified", "completed"]


async def test_environment_is_described_once_and_sessions_are_its_own(path: str) -> None:
    environment = TinyEnvironment(items=[new_message("user", "the board")])
    models = policy(says("a"), repeat=True)
    async with running(path, environment, models) as mesh:
        for number in range(3):
            request = ask()
            request.rollout_id = f"r{number}"
            events = await mesh.run(request)
            assert text_of(events[0].started.items[-1]) == "the board"
    assert environment.described == 1
    assert environment.closed == ["s1", "s2", "s3"]


async def test_role_is_served_as_options_then_configuration_say(path: str) -> None:
    names = ("policy", "mine", "theirs")
    models = {name: ScriptedModel([says("x")], repeat=True) for name in names}
    config = AgentConfig(models={"policy": "mine"})
    async with running(path, TinyEnvironment(), models, config) as mesh:
        assert model_calls(await mesh.run())[0].model == "mine"
        events = await mesh.run(ask(models={"policy": "theirs"}))
        assert model_calls(events)[0].model == "theirs"
        assert model_calls(events)[0].trainable


async def test_deltas_are_sent_when_asked_for_and_offered(path: str) -> None:
    models = {"policy": StreamingModel([says("hey")], repeat=True)}
    async with running(path, TinyEnvironment(), models) as mesh:
        events = await mesh.run(ask(deltas=True))
        assert "output_delta" not in kinds(await mesh.run())
    pieces = [event for event in events if event.HasField("output_delta")]
    assert b"".join(event.output_delta.text for event in pieces) == b"hey"
    assert all(event.ignorable for event in pieces)
    async with running(path, TinyEnvironment(), policy(says("whole"))) as mesh:
        assert stop_of(await mesh.run(ask(deltas=True))) == Stops.STOP_REASON_MODEL_FINISHED


# ---- tools --------------------------------------------------------------------------------------
async def test_calls_run_side_by_side_and_the_conversation_has_them_in_order(path: str) -> None:
    order = [asyncio.Event() for _ in range(3)]

    async def wait_for(mine: int, next_: int | None) -> resource_pb2.CallToolResponse:
        await order[mine].wait()
        if next_ is not None:
            order[next_].set()
        return ok(f"out{mine}")

    # The last one answers first: one after another they would wait for ever.
    order[2].set()
    environment = TinyEnvironment(
        tools={
            "a": lambda _: wait_for(0, None),
            "b": lambda _: wait_for(1, 0),
            "c": lambda _: wait_for(2, 1),
        }
    )
    three = calls(call("a", "{}", "fa"), call("b", "{}", "fb"), call("c", "{}", "fc"))
    async with running(path, environment, policy(three, says("ok"))) as mesh:
        events = await mesh.run()
        asked = mesh.model.requests[1].params.input
    completed = [e.tool_call_completed.call_id for e in events if e.HasField("tool_call_completed")]
    # As they ended, in one process; between two, answers may overtake one another on the way.
    assert completed == ["fc", "fb", "fa"] or path != "direct"
    assert sorted(completed) == ["fa", "fb", "fc"]
    assert [text_of(item) for item in asked[-3:]] == ["out0", "out1", "out2"]
    assert len({one.request_id for one in environment.called}) == 3


async def test_what_the_model_did_wrong_is_shown_to_it(path: str) -> None:
    async def refuse(arguments: bytes) -> resource_pb2.CallToolResponse:
        error = rollout_pb2.TOOL_OUTCOME_TOOL_ERROR
        return resource_pb2.CallToolResponse(text=b"divided by zero", outcome=error)

    environment = TinyEnvironment(
        tools={"div": refuse, "gone": raising(Reason.ERROR_REASON_TOOL_NOT_FOUND)}
    )
    wrong = calls(
        call("div", "{}", "f1"),
        call("div", "nonsense", "f2"),
        call("dvi", "{}", "f3"),
        call("gone", "{}", "f4"),
        {"arguments": "{}"},
    )
    async with running(path, environment, policy(wrong, says("sorry"))) as mesh:
        events = await mesh.run()
        shown = [text_of(item) for item in mesh.model.requests[1].params.input[-5:]]
    assert shown[:4] == ["divided by zero", "not JSON", "no such tool", "it broke"]
    assert "names no tool" in shown[4]
    by_id = {
        event.tool_call_completed.call_id: event.tool_call_completed
        for event in events
        if event.HasField("tool_call_completed")
    }
    assert by_id["f1"].outcome == Outcomes.TOOL_OUTCOME_TOOL_ERROR
    assert by_id["f2"].outcome == Outcomes.TOOL_OUTCOME_BAD_ARGUMENTS
    assert by_id["f3"].outcome == by_id["f4"].outcome == Outcomes.TOOL_OUTCOME_UNKNOWN_TOOL
    assert by_id["c1-f4"].outcome == Outcomes.TOOL_OUTCOME_UNKNOWN_TOOL
    assert kinds(events).count("tool_call_started") == 4  # the fifth never left the agent
    assert stop_of(events) == Stops.STOP_REASON_MODEL_FINISHED


async def test_tool_that_cannot_be_carried_out_fails_the_rollout(path: str) -> None:
    environment = TinyEnvironment(
        tools={"slow": hang, "bad": raising(Reason.ERROR_REASON_ENVIRONMENT_FAULT)},
        retry_safe=False,
    )
    both = calls(call("slow", "{}", "f1"), call("bad", "{}", "f2"))
    async with running(path, environment, policy(both)) as mesh:
        events = await mesh.run()
    assert failure_in(events) == ("RESOURCE", "ENVIRONMENT_FAULT")
    failure = events[-1].failed.failure
    assert (failure.component, failure.call_id, failure.retry_safe) == ("bad", "f2", False)
    assert not environment.verified


async def test_tool_over_its_time_is_not_the_rollouts_deadline(path: str) -> None:
    environment = TinyEnvironment(tools={"slow": hang})
    config = AgentConfig(tool_timeout_s=2.0)
    async with running(path, environment, policy(calls(call("slow"))), config) as mesh:
        events = await mesh.run()
    assert failure_in(events) == ("TOOL", "DEADLINE_PASSED")
    assert events[-1].failed.failure.component == "slow"


async def test_tool_that_ends_the_episode(path: str) -> None:
    environment = TinyEnvironment(tools={"win": fixed("won", done=True), "add": fixed("4")})
    both = calls(call("win", "{}", "f1"), call("add", "{}", "f2"))
    async with running(path, environment, policy(both)) as mesh:
        events = await mesh.run()
    assert stop_of(events) == Stops.STOP_REASON_ENVIRONMENT_DONE
    assert outcomes(events) == ["OK", "OK"]
    assert len(environment.verified[0].transcript) == 4


# ---- limits of the policy -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "options", "stop"),
    [
        ([says("4 an", **cut("max_output_tokens"))], {}, "MAX_OUTPUT_TOKENS"),
        ([calls(call("add"), **cut("content_filter"))], {}, "CONTENT_FILTER"),
        ([calls(call("add"))], {"max_steps": 2}, "MAX_STEPS"),
        ([calls(call("add"))], {}, "MAX_STEPS"),
        ([calls(call("add"), tokens=9)], {"max_total_output_tokens": 18}, "MAX_OUTPUT_TOKENS"),
        (
            [
                calls(call("add")),
                MeshError(Reason.ERROR_REASON_MODEL_CONTEXT_EXCEEDED, "too long"),
            ],
            {},
            "CONTEXT_LENGTH",
        ),
    ],
)
async def test_limits_of_the_policy_complete_and_are_judged(
    path: str, steps: list[Step], options: dict[str, Any], stop: str
) -> None:
    environment = TinyEnvironment(tools={"add": fixed("4")})
    async with running(path, environment, policy(*steps, repeat=True)) as mesh:
        events = await mesh.run(ask(**options))
    assert stop_of(events) == Stops.Value(f"STOP_REASON_{stop}")
    assert environment.verified[0].stop_reason == stop_of(events)
    expected = {"MAX_STEPS": options.get("max_steps", 8), "MAX_OUTPUT_TOKENS": len(options) + 1}
    assert events[-1].completed.counts.model_calls == expected.get(stop, 1)
    if "max_total_output_tokens" in options:
        sent = [one.params.max_output_tokens for one in mesh.model.requests]
        assert sent == [18, 16]
    if stop == "MAX_STEPS":
        last = model_calls(events)[-1].call_id
        assert conversation(events, last)[-1].HasField("function_call_output")


# ---- turns --------------------------------------------------------------------------------------
async def test_turns_until_the_environment_is_done(path: str) -> None:
    environment = TinyEnvironment(
        tools={"look": fixed("a door")},
        turns=[turn("go on", reward=0.25), turn("", reward=0.5, done=True)],
        rule=resource_pb2.REWARD_RULE_SUM,
    )
    models = policy(calls(call("look")), says("I open it"), says("I go in"))
    async with running(path, environment, models) as mesh:
        events = await mesh.run()
    assert stop_of(events) == Stops.STOP_REASON_ENVIRONMENT_DONE
    turns = [event.turn_completed for event in events if event.HasField("turn_completed")]
    assert [(one.turn, one.model_call_id, one.done) for one in turns] == [
        (1, "c2", False),
        (2, "c3", True),
    ]
    assert [len(one.new_items) for one in environment.turned] == [3, 1]
    assert [one.request_id for one in environment.turned] == ["r1/1/t1", "r1/1/t2"]
    assert list(environment.verified[0].turn_rewards) == [0.25, 0.5]
    assert events[-2].verified.verification.reward == 1.75


async def test_rewards_of_tool_calls_count_as_those_of_turns(path: str) -> None:
    environment = TinyEnvironment(
        tools={"look": fixed("a door", reward=0.25), "wait": fixed("")},
        turns=[turn("", reward=0.5, done=True)],
        rule=resource_pb2.REWARD_RULE_SUM,
    )
    models = policy(calls(call("look"), call("wait")), says("I open it"))
    async with running(path, environment, models) as mesh:
        events = await mesh.run()
    done = [event.tool_call_completed for event in events if event.HasField("tool_call_completed")]
    rewards = {one.name: one.reward if one.HasField("reward") else None for one in done}
    assert rewards == {"look": 0.25, "wait": None}
    assert list(environment.verified[0].turn_rewards) == [0.25, 0.5]
    assert events[-2].verified.verification.reward == 1.75


async def test_a_reward_of_a_tool_call_that_is_no_number_is_no_reward(path: str) -> None:
    environment = TinyEnvironment(tools={"look": fixed("a door", reward=math.nan)})
    async with running(path, environment, policy(calls(call("look")))) as mesh:
        events = await mesh.run()
    assert failure_in(events) == ("TOOL", "CONTRACT_VIOLATED")


@pytest.mark.parametrize("bad", [turn(""), turn("x", reward=math.nan)])
async def test_turn_that_breaks_the_contract(path: str, bad: Any) -> None:
    environment = TinyEnvironment(turns=[bad])
    async with running(path, environment, policy(says("x"), repeat=True)) as mesh:
        assert failure_in(await mesh.run()) == ("RESOURCE", "CONTRACT_VIOLATED")


# ---- verdicts -----------------------------------------------------------------------------------
@pytest.mark.parametrize("status", ["PENDING", "SKIPPED"])
async def test_a_verdict_may_be_none(path: str, status: str) -> None:
    value = rollout_pb2.VerificationStatus.Value(f"VERIFICATION_STATUS_{status}")
    verdict = rollout_pb2.Verification(status=value, reason="with its group")
    async with running(path, TinyEnvironment(verdict=verdict), policy(says("x"))) as mesh:
        events = await mesh.run()
    assert kinds(events)[-2:] == ["verified", "completed"]
    assert events[-2].verified.verification == verdict


async def test_verification_is_skipped_on_request(path: str) -> None:
    environment = TinyEnvironment()
    async with running(path, environment, policy(says("x"))) as mesh:
        events = await mesh.run(ask(skip_verification=True))
    verdict = events[-2].verified.verification
    assert verdict.status == rollout_pb2.VERIFICATION_STATUS_SKIPPED
    assert verdict.reason
    assert not verdict.HasField("reward")
    assert not environment.verified


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (MeshError(Reason.ERROR_REASON_VERIFIER_FAULT, "broken"), "VERIFIER_FAULT"),
        (reward(None), "CONTRACT_VIOLATED"),
        (reward(math.nan), "CONTRACT_VIOLATED"),
        (rollout_pb2.Verification(reward=1.0), "CONTRACT_VIOLATED"),
    ],
)
async def test_trouble_of_the_verifier_is_no_reward(path: str, verdict: Any, reason: str) -> None:
    async with running(path, TinyEnvironment(verdict=verdict), policy(says("x"))) as mesh:
        events = await mesh.run()
    assert failure_in(events) == ("VERIFIER", reason)
    assert "verified" not in kinds(events)
