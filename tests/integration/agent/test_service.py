"""Requests that are no rollout, and the end of things."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.service import AgentService
from gymmesh_client import InProcessAgent
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from tests.integration.agent.words import (
    hang,
    policy,
)
from tests.unit.agent.mesh import BOUND_S, Mesh, ask, running, until
from tests.unit.agent.servicers import (
    TinyEnvironment,
)

Reason = errors_pb2.ErrorReason


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


async def test_caller_in_this_process_who_leaves_ends_the_attempt() -> None:
    environment = TinyEnvironment()
    async with running("direct", environment, policy(hang)) as mesh:
        events: list[Any] = []
        agent = InProcessAgent(mesh.service)
        call = agent.run_rollout(ask(), timeout=LONG_S, sink=events.append)
        waiting = asyncio.create_task(call)
        await until(lambda: mesh.model.requests)
        waiting.cancel()
        await asyncio.wait({waiting})
        await mesh.settled()
        await until(lambda: mesh.model.cancelled)
    assert environment.closed == ["s1"]
    assert [event.WhichOneof("event") for event in events] == ["started"]


async def test_attempt_that_is_stopped_before_it_began_leaves_nothing_behind() -> None:
    environment = TinyEnvironment()
    async with running("direct", environment, policy(hang)) as mesh:
        run = mesh.service.run_rollout(ask(), CallContext("RunRollout"), lambda event: None)
        running_it = asyncio.create_task(run)
        await asyncio.sleep(0)  # the attempt has a task, which has not begun
        (attempt,) = mesh.service._running.values()
        attempt.stop()
        with pytest.raises(MeshError, match="DRAINING"):
            await running_it
        await mesh.settled()  # its session closed, and its number free again
        assert len(environment.closed) == len(environment.created)


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
