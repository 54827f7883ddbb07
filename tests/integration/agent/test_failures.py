"""What goes wrong in a rollout, and how it is told, over every path."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh_agent import plan
from gymmesh_agent.config import AgentConfig
from gymmesh_client import InProcessAgent
from gymmesh_responses import text_of
from gymmesh_runtime.errors import MeshError, from_status
from tests.integration.agent.words import (
    failure_in,
    fixed,
    hang,
    policy,
)
from tests.unit.agent.mesh import BOUND_S, ask, running, until
from tests.unit.agent.servicers import (
    ScriptedModel,
    TinyEnvironment,
    call,
    calls,
    says,
)
from tests.unit.agent.streams import kinds

Reason = errors_pb2.ErrorReason


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


@pytest.fixture
def slow_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a minute that a rollout has, its last event has nearly all to reach the caller."""
    monkeypatch.setattr(plan, "_REPLY_S", 58.0)
    monkeypatch.setattr(plan, "_REPLY_SHARE", 1.0)


@pytest.mark.usefixtures("slow_answers")
async def test_deadline_of_the_rollout(path: str) -> None:
    async with running(path, TinyEnvironment(), policy(hang)) as mesh:
        events = await mesh.run(timeout=60.0)
        assert failure_in(events) == ("DEADLINE", "DEADLINE_PASSED")
        await until(lambda: mesh.model.cancelled)


@pytest.mark.usefixtures("slow_answers")
async def test_a_rollout_in_this_process_keeps_its_deadline_by_itself() -> None:
    events: list[Any] = []
    async with running("direct", TinyEnvironment(), policy(hang)) as mesh:
        agent = InProcessAgent(mesh.service)
        async with asyncio.timeout(BOUND_S):
            await agent.run_rollout(ask(), timeout=60.0, sink=events.append)
        await mesh.settled()
    assert failure_in(events) == ("DEADLINE", "DEADLINE_PASSED")


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
