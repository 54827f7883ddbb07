"""The agent service against real servicers, over every path that the runtime has."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.service import AgentService
from gymmesh_responses import new_message, params_to_dict, text_of
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError, from_status
from gymmesh_runtime.peers import PeerDirectory
from tests.unit.agent.mesh import BOUND_S, Mesh, ask, running, until
from tests.unit.agent.servicers import (
    ScriptedModel,
    Step,
    StreamingModel,
    TinyEnvironment,
    Tool,
    call,
    calls,
    ok,
    reward,
    says,
)
from tests.unit.agent.streams import Events, conversation, kinds, model_calls

Reason = errors_pb2.ErrorReason
Boundary = rollout_pb2.Boundary
Stops = rollout_pb2.StopReason
Outcomes = rollout_pb2.ToolOutcome

PATHS = ["direct", "grpc", "mux"]


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def policy(*steps: Step, **more: Any) -> dict[str, ScriptedModel]:
    return {"policy": ScriptedModel(list(steps), **more)}


def fixed(text: str, *, done: bool = False) -> Tool:
    async def run(arguments: bytes) -> resource_pb2.CallToolResponse:
        return ok(text, done=done)

    return run


def raising(reason: Reason.ValueType) -> Tool:
    async def run(arguments: bytes) -> resource_pb2.CallToolResponse:
        raise MeshError(reason, "it broke")

    return run


async def hang(request: object) -> Any:
    await asyncio.Event().wait()


def turn(text: str = "", **more: Any) -> resource_pb2.NextTurnResponse:
    items = [new_message("user", text)] if text else []
    return resource_pb2.NextTurnResponse(items=items, **more)


def stop_of(events: Events) -> rollout_pb2.StopReason.ValueType:
    return events[-1].completed.stop_reason


def failure_in(events: Events) -> tuple[str, str]:
    """Boundary and reason of a failed attempt."""
    assert kinds(events)[-1] == "failed"
    failure = events[-1].failed.failure
    boundary = Boundary.Name(failure.boundary).removeprefix("BOUNDARY_")
    return boundary, from_status(failure.status).reason_name


def outcomes(events: Events) -> list[str]:
    return [
        Outcomes.Name(event.tool_call_completed.outcome).removeprefix("TOOL_OUTCOME_")
        for event in events
        if event.HasField("tool_call_completed")
    ]


# ---- the ordinary course ------------------------------------------------------------------------
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
    config = AgentConfig(tool_timeout_s=0.2)
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
def cut(reason: str) -> dict[str, Any]:
    return {"status": "incomplete", "incomplete_details": {"reason": reason}}


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


# ---- failures -----------------------------------------------------------------------------------
async def test_model_down_at_the_second_call(path: str) -> None:
    down = MeshError(Reason.ERROR_REASON_MODEL_UNREACHABLE, "refused", retry_after_s=1.5)
    environment = TinyEnvironment(tools={"add": fixed("4")})
    async with running(path, environment, policy(calls(call("add")), down)) as mesh:
        events = await mesh.run()
    assert failure_in(events) == ("MODEL", "MODEL_UNREACHABLE")
    failure = events[-1].failed.failure
    assert (failure.component, failure.call_id, failure.retry_safe) == ("policy", "c2", True)
    assert from_status(failure.status).retry_after_s == 1.5
    assert events[-1].failed.counts.model_calls == 1


async def test_response_that_is_no_answer(path: str) -> None:
    error = {"code": "server_error", "message": "try later"}
    failed = says("", status="failed", error=error)
    async with running(path, TinyEnvironment(), policy(failed)) as mesh:
        events = await mesh.run()
    assert failure_in(events) == ("MODEL", "MODEL_ANSWER_INVALID")
    assert "try later" in events[-1].failed.failure.status.message


async def test_model_that_nobody_serves(path: str) -> None:
    async with running(path, TinyEnvironment(), policy()) as mesh:
        events = await mesh.run(ask(models={"policy": "polcy"}))
    assert failure_in(events) == ("MODEL", "SERVICE_NOT_FOUND")
    assert "did you mean 'policy'" in events[-1].failed.failure.status.message


async def test_slow_model_is_not_the_rollouts_deadline(path: str) -> None:
    config = AgentConfig(model_timeout_s=0.2)
    async with running(path, TinyEnvironment(), policy(hang), config) as mesh:
        events = await mesh.run()
    assert failure_in(events) == ("MODEL", "DEADLINE_PASSED")


async def test_deadline_of_the_rollout(path: str) -> None:
    async with running(path, TinyEnvironment(), policy(hang)) as mesh:
        events = await mesh.run(timeout=1.0)
        assert failure_in(events) == ("DEADLINE", "DEADLINE_PASSED")
        await until(lambda: mesh.model.cancelled)


async def test_wall_clock_budget(path: str) -> None:
    async with running(path, TinyEnvironment(), policy(hang)) as mesh:
        events = await mesh.run(ask(max_wall_s=0.3))
    assert failure_in(events) == ("BUDGET", "BUDGET_SPENT")
    assert not events[-1].failed.failure.retry_safe


async def test_session_that_cannot_be_opened_is_a_stream_all_the_same(path: str) -> None:
    invalid = MeshError(Reason.ERROR_REASON_TASK_INVALID, "no `expected`")
    environment = TinyEnvironment(create_errors=[invalid])
    async with running(path, environment, policy()) as mesh:
        events = await mesh.run()
    assert kinds(events) == ["started", "failed"]
    assert failure_in(events) == ("RESOURCE", "TASK_INVALID")
    assert [text_of(item) for item in events[0].started.items] == ["2+2?"]
    assert events[0].started.session_id == ""
    assert events[-1].failed.failure.component == "tiny"


@pytest.mark.parametrize(("times", "ending"), [(1, "completed"), (2, "failed")])
async def test_session_is_asked_for_once_more(path: str, times: int, ending: str) -> None:
    away = [MeshError(Reason.ERROR_REASON_PEER_UNAVAILABLE, "away") for _ in range(times)]
    environment = TinyEnvironment(create_errors=away)
    async with running(path, environment, policy(says("x"))) as mesh:
        events = await mesh.run()
    assert kinds(events)[-1] == ending
    assert [one.request_id for one in environment.created] == ["r1/1", "r1/1"]


async def test_stale_weights(path: str) -> None:
    class Swapped(ScriptedModel):
        async def CreateResponse(
            self, request: model_pb2.CreateResponseRequest, context: Any
        ) -> model_pb2.CreateResponseResponse:
            reply = await super().CreateResponse(request, context)
            reply.tokens.weights.add(version=len(self.requests))
            return reply

    environment = TinyEnvironment(tools={"add": fixed("4")})
    models = {"policy": Swapped([calls(call("add"))], repeat=True)}
    async with running(path, environment, models) as mesh:
        events = await mesh.run(ask(max_staleness=1))
    assert failure_in(events) == ("BUDGET", "WEIGHTS_STALE")
    assert events[-1].failed.counts.model_calls == 3


# ---- requests that are no rollout, and the end of things ----------------------------------------
def without_environment(request: agent_pb2.RunRolloutRequest) -> None:
    request.task.environment = ""


def other_agent(request: agent_pb2.RunRolloutRequest) -> None:
    request.task.agent = "planner"


def bad_override(request: agent_pb2.RunRolloutRequest) -> None:
    request.options.params_override_json = b"{"


def no_steps(request: agent_pb2.RunRolloutRequest) -> None:
    request.options.max_steps = 0


def no_time(request: agent_pb2.RunRolloutRequest) -> None:
    request.options.max_wall_s = math.nan


@pytest.mark.parametrize(
    ("spoil", "reason", "field"),
    [
        (without_environment, "REQUIRED_FIELD_MISSING", "task.environment"),
        (other_agent, "SERVICE_NOT_FOUND", ""),
        (bad_override, "FIELD_INVALID", "options.params_override_json"),
        (no_steps, "FIELD_INVALID", "options.max_steps"),
        (no_time, "FIELD_INVALID", "options.max_wall_s"),
    ],
)
async def test_bad_requests_fail_the_call(
    path: str, spoil: Callable[[agent_pb2.RunRolloutRequest], None], reason: str, field: str
) -> None:
    request = ask()
    spoil(request)
    environment = TinyEnvironment()
    async with running(path, environment, policy()) as mesh:
        with pytest.raises(MeshError) as caught:
            await mesh.run(request)
    assert caught.value.reason_name == reason
    assert caught.value.metadata.get("field", "") == field
    assert not environment.created


# Longer than any test waits, so that no attempt ends by its deadline instead.
LONG_S = 10 * BOUND_S


async def started_stream(mesh: Mesh) -> Any:
    stream = mesh.agent.RunRollout(ask(), timeout=LONG_S)
    await anext(stream)
    return stream


async def test_caller_who_leaves_ends_the_attempt_and_closes_the_session(path: str) -> None:
    environment = TinyEnvironment()
    async with running(path, environment, policy(hang)) as mesh:
        stream = await started_stream(mesh)
        await until(lambda: mesh.model.requests)
        await stream.aclose()
        await mesh.settled()
        await until(lambda: mesh.model.cancelled)
    assert environment.closed == ["s1"]


async def test_caller_who_leaves_while_the_session_opens_leaks_none(path: str) -> None:
    gate = asyncio.Event()
    environment = TinyEnvironment(create_gate=gate)
    async with running(path, environment, policy()) as mesh:
        stream = mesh.agent.RunRollout(ask(), timeout=LONG_S)
        reading = asyncio.create_task(anext(stream))
        await until(lambda: environment.open)
        reading.cancel()
        await asyncio.wait({reading})
        await stream.aclose()
        gate.set()
        await mesh.settled()
    assert environment.closed == ["s1"]


async def test_same_attempt_twice_at_once_is_refused(path: str) -> None:
    async with running(path, TinyEnvironment(), policy(hang, repeat=True)) as mesh:
        stream = await started_stream(mesh)
        with pytest.raises(MeshError) as caught:
            await mesh.run()
        assert caught.value.reason == Reason.ERROR_REASON_ROLLOUT_EXISTS
        await stream.aclose()
        await mesh.settled()


async def test_closing_the_service_ends_its_attempts(path: str) -> None:
    environment = TinyEnvironment()
    async with running(path, environment, policy(hang)) as mesh:
        stream = await started_stream(mesh)
        await mesh.service.close()
        await mesh.service.close()
        with pytest.raises(MeshError) as caught:
            async with asyncio.timeout(BOUND_S):
                await anext(stream)
        assert caught.value.reason == Reason.ERROR_REASON_DRAINING
        assert environment.closed == ["s1"]
        with pytest.raises(MeshError) as caught:
            await mesh.run()
        assert caught.value.reason == Reason.ERROR_REASON_DRAINING


async def test_agent_says_what_it_is(path: str) -> None:
    async with running(path, TinyEnvironment(), policy()) as mesh:
        about = await mesh.agent.GetAgent(agent_pb2.GetAgentRequest(), timeout=BOUND_S)
    assert (about.name, about.instance_id) == ("tool_loop", "tool_loop-0")
    assert list(about.model_roles) == ["policy"]
    assert about.version
    assert about.collect
    assert about.capacity > 0


async def test_unknown_agent_class_is_a_mistake_of_the_configuration() -> None:
    service = AgentService(AgentConfig(use="tool_lop"), "mine", "mine-0")
    with pytest.raises(ConfigError, match=r"agents\.mine: use: .* did you mean 'tool_loop'"):
        await service.open(PeerDirectory())


# ---- the laws, for any course -------------------------------------------------------------------
_RAISED = [
    Reason.ERROR_REASON_MODEL_TIMEOUT,
    Reason.ERROR_REASON_MODEL_CONTEXT_EXCEEDED,
    Reason.ERROR_REASON_PEER_UNAVAILABLE,
]
_CALLS = st.lists(
    st.builds(
        call,
        st.sampled_from(["ok", "bad", "nope", "win"]),
        st.sampled_from(["{}", "}"]),
        st.sampled_from(["f1", "f2"]),
    ),
    max_size=3,
)
_STEPS: st.SearchStrategy[Step] = st.one_of(
    st.builds(lambda functions: calls(*functions), _CALLS),
    st.builds(lambda functions: calls(*functions), _CALLS),
    st.builds(says, st.text(max_size=3)),
    st.builds(lambda: says("", **cut("max_output_tokens"))),
    st.builds(lambda reason: MeshError(reason, "x"), st.sampled_from(_RAISED)),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=st.lists(_STEPS, min_size=1, max_size=5),
    fault=st.booleans(),
    turns=st.integers(0, 2),
    verdict=st.sampled_from([reward(0.0), reward(None), MeshError(_RAISED[0], "judge")]),
    refused=st.booleans(),
)
def test_any_course_keeps_the_laws(
    steps: list[Step], fault: bool, turns: int, verdict: Any, refused: bool
) -> None:
    async def course() -> None:
        full = MeshError(Reason.ERROR_REASON_SESSION_LIMIT, "full")
        bad = raising(Reason.ERROR_REASON_ENVIRONMENT_FAULT) if fault else fixed("fine")
        environment = TinyEnvironment(
            tools={"ok": fixed("4"), "bad": bad, "win": fixed("won", done=True)},
            turns=[turn("on")] * (turns - 1) + [turn(done=True)] * bool(turns),
            verdict=verdict,
            create_errors=[full] if refused else [],
        )
        async with running("direct", environment, policy(*steps, repeat=True)) as mesh:
            events = await mesh.run(ask(max_steps=4))
        assert environment.closed == ([] if refused else ["s1"])
        if kinds(events)[-1] == "completed":
            assert not refused
            assert isinstance(verdict, rollout_pb2.Verification)
            assert verdict.HasField("reward")

    with asyncio.Runner() as runner:
        runner.run(course())
