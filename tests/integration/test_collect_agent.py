"""The agent service over Collect: each attempt runs as RunRollout would run it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent import plan
from gymmesh_agent.collect_stream.config import CollectConfig
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.service import AgentService
from gymmesh_client.collect_stream import CollectStream
from gymmesh_runtime.errors import MeshError, from_status
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serve import ServeOptions, serving
from tests.unit.agent.mesh import BOUND_S, Mesh, ask, running, until
from tests.unit.agent.servicers import (
    ScriptedModel,
    StreamingModel,
    TinyEnvironment,
    Tool,
    call,
    calls,
    ok,
    says,
)
from tests.unit.agent.streams import check_law, kinds


@pytest.fixture(params=["direct", "grpc"])
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def fixed(text: str) -> Tool:
    async def run(arguments: bytes) -> Any:
        return ok(text)

    return run


async def hang(request: object) -> Any:
    await asyncio.Event().wait()


@asynccontextmanager
async def collecting(mesh: Mesh) -> AsyncIterator[CollectStream]:
    stream = CollectStream(mesh.agent, "the agent")
    try:
        async with asyncio.timeout(BOUND_S):
            yield stream
    finally:
        await stream.close()


async def run(
    stream: CollectStream, request: agent_pb2.RunRolloutRequest, timeout_s: float = BOUND_S
) -> list[rollout_pb2.RolloutEvent]:
    events: list[rollout_pb2.RolloutEvent] = []
    await stream.run(request, timeout_s=timeout_s, on_event=events.append)
    check_law(events, request.rollout_id, request.attempt or 1)
    return events


async def test_a_rollout_is_what_it_is_over_runrollout(path: str) -> None:
    steps = [calls(call("add", '{"a": 2}')), says("It is 4.")]
    environment = TinyEnvironment(tools={"add": fixed("4")})
    models = {"policy": ScriptedModel([*steps, *steps])}
    async with running(path, environment, models) as mesh, collecting(mesh) as stream:
        collected = await run(stream, ask())
        called = await mesh.run(ask())
        await mesh.settled()
    for one in (*collected, *called):
        one.record_time_unix_nano = 0
    assert kinds(collected) == kinds(called)
    assert collected[0].started.params == called[0].started.params
    assert collected[-1].completed.stop_reason == called[-1].completed.stop_reason
    assert collected[-2].verified.verification == called[-2].verified.verification


async def test_deltas_come_only_when_asked_for(path: str) -> None:
    models = {"policy": StreamingModel([says("Hello there."), says("Hello there.")])}
    async with running(path, TinyEnvironment(), models) as mesh, collecting(mesh) as stream:
        plain = await run(stream, ask())
        request = ask(deltas=True)
        request.attempt = 2
        with_deltas = await run(stream, request)
    assert "output_delta" not in kinds(plain)
    assert "output_delta" in kinds(with_deltas)


async def test_a_failure_is_an_event_and_a_refusal_an_error(path: str) -> None:
    async with (
        running(path, TinyEnvironment(), {"policy": ScriptedModel([])}) as mesh,
        collecting(mesh) as stream,
    ):
        lost = ask()
        lost.task.environment = "nowhere"
        events = await run(stream, lost)
        assert kinds(events) == ["started", "failed"]
        assert events[-1].failed.failure.boundary == rollout_pb2.BOUNDARY_RESOURCE
        other = ask()
        other.attempt = 2
        other.task.agent = "someone_else"
        with pytest.raises(MeshError, match="SERVICE_NOT_FOUND"):
            await run(stream, other)
        wrong = ask(max_steps=0)
        wrong.attempt = 3
        with pytest.raises(MeshError, match="FIELD_INVALID"):
            await run(stream, wrong)


async def test_the_deadline_is_a_failure_that_arrives(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "_REPLY_S", 58.0)  # of the minute that it has, for it to arrive
    monkeypatch.setattr(plan, "_REPLY_SHARE", 1.0)
    models = {"policy": ScriptedModel([hang])}
    async with running(path, TinyEnvironment(), models) as mesh, collecting(mesh) as stream:
        events = await run(stream, ask(), timeout_s=60.0)
        assert events[-1].failed.failure.boundary == rollout_pb2.BOUNDARY_DEADLINE
        await mesh.settled()


async def test_an_attempt_that_runs_here_already_is_refused(path: str) -> None:
    models = {"policy": ScriptedModel([hang])}
    async with running(path, TinyEnvironment(), models) as mesh:
        async with collecting(mesh) as one, collecting(mesh) as other:
            task = asyncio.create_task(one.run(ask(), timeout_s=BOUND_S, on_event=lambda e: None))
            await until(lambda: mesh.environment.open)
            with pytest.raises(MeshError, match="ROLLOUT_EXISTS"):
                await other.run(ask(), timeout_s=BOUND_S, on_event=lambda e: None)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await mesh.settled()


async def test_cancelling_closes_the_session(path: str) -> None:
    models = {"policy": ScriptedModel([hang])}
    async with running(path, TinyEnvironment(), models) as mesh, collecting(mesh) as stream:
        task = asyncio.create_task(stream.run(ask(), timeout_s=BOUND_S, on_event=lambda e: None))
        await until(lambda: mesh.environment.open)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await mesh.settled()


async def test_a_collector_that_is_gone_for_good_costs_its_rollouts(path: str) -> None:
    config = AgentConfig(collect=CollectConfig(resume_window_s=0.1))
    models = {"policy": ScriptedModel([hang])}
    async with running(path, TinyEnvironment(), models, config) as mesh:

        async def requests() -> AsyncIterator[agent_pb2.CollectRequest]:
            yield agent_pb2.CollectRequest(
                hello=agent_pb2.CollectHello(stream_id="s" * 20, credit=100)
            )
            starts = [agent_pb2.CollectStart(request=ask())]
            yield agent_pb2.CollectRequest(starts=agent_pb2.CollectStarts(starts=starts))
            await asyncio.Event().wait()

        async with aclosing(mesh.agent.Collect(requests(), timeout=BOUND_S)) as responses:
            async for response in responses:
                if response.HasField("events"):
                    break
        await until(lambda: not mesh.environment.open)
        await mesh.settled()


async def test_a_shutdown_ends_rollouts_with_a_failure_that_is_safe_to_retry(path: str) -> None:
    models = {"policy": ScriptedModel([hang])}
    async with running(path, TinyEnvironment(), models) as mesh, collecting(mesh) as stream:
        task = asyncio.create_task(run(stream, ask()))
        await until(lambda: mesh.model.requests)  # it has begun
        await mesh.service.close()
        events = await task
        failure = events[-1].failed.failure
        assert from_status(failure.status).reason_name == "DRAINING"
        assert failure.retry_safe
        await until(lambda: stream.broken)
        assert stream.broken is not None
        assert stream.broken.reason_name == "DRAINING"


async def test_a_server_is_not_held_up_by_collectors_with_nothing_in_flight() -> None:
    service = AgentService(AgentConfig(), "tool_loop", "tool_loop-0")
    directory = PeerDirectory(transport="plain")
    options = ServeOptions(metrics_port=None, drain_s=600.0)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(directory.close)
        async with asyncio.timeout(BOUND_S):
            async with serving(service, options) as served:
                directory.upsert(served.instance)
                stream = CollectStream(directory.peer(served.instance), "the agent")
                stack.push_async_callback(stream.close)
                events = await run(stream, ask())  # finds no environment, which is an outcome
                assert kinds(events) == ["started", "failed"]
        await until(lambda: stream.broken)


# ---- hello --------------------------------------------------------------------------------------
def hello(**fields: Any) -> agent_pb2.CollectRequest:
    known = {"stream_id": "a-stream-hard-to-guess", "credit": 10, **fields}
    return agent_pb2.CollectRequest(hello=agent_pb2.CollectHello(**known))


async def converse(
    mesh: Mesh, *requests: agent_pb2.CollectRequest | bytes, wait: bool = False
) -> list[agent_pb2.CollectResponse]:
    """What the agent answers to these messages; with `wait` the last one is not the end."""

    async def say() -> AsyncIterator[agent_pb2.CollectRequest | bytes]:
        for request in requests:
            yield request
        if wait:
            await asyncio.Event().wait()

    call = mesh.agent.Collect(say(), timeout=BOUND_S)
    async with asyncio.timeout(BOUND_S), aclosing(call) as heard:
        return [response async for response in heard]


@pytest.mark.parametrize(
    ("messages", "reason", "field"),
    [
        ([], "REQUIRED_FIELD_MISSING", "hello"),
        ([agent_pb2.CollectRequest()], "REQUIRED_FIELD_MISSING", "hello"),
        (
            [agent_pb2.CollectRequest(credit=agent_pb2.CollectCredit(events=1))],
            "REQUIRED_FIELD_MISSING",
            "hello",
        ),
        ([hello(stream_id="")], "REQUIRED_FIELD_MISSING", "hello.stream_id"),
        ([hello(credit=0)], "REQUIRED_FIELD_MISSING", "hello.credit"),
        ([hello(contract_version="2.0")], "CONTRACT_MISMATCH", None),
        ([hello(), hello()], "FIELD_INVALID", "hello"),
        ([hello(), agent_pb2.CollectRequest()], "REQUIRED_FIELD_MISSING", "message"),
        (
            [hello(), agent_pb2.CollectRequest(ack=agent_pb2.CollectAck(cursor=7))],
            "FIELD_INVALID",
            "ack.cursor",
        ),
        ([b"\x0a\xff"], "FIELD_INVALID", ""),
        ([hello(), b"\x0a\xff"], "FIELD_INVALID", ""),
    ],
)
async def test_what_the_contract_does_not_allow_ends_the_connection(
    path: str, messages: list[agent_pb2.CollectRequest | bytes], reason: str, field: str | None
) -> None:
    async with running(path, TinyEnvironment(), {"policy": ScriptedModel([])}) as mesh:
        with pytest.raises(MeshError) as caught:
            await converse(mesh, *messages, wait=len(messages) > 1)
    assert caught.value.reason_name == reason
    assert caught.value.metadata.get("field") == field


async def test_streams_are_new_unknown_or_go_on(path: str) -> None:
    async with running(path, TinyEnvironment(), {"policy": ScriptedModel([])}) as mesh:
        (new,) = await converse(mesh, hello())
        assert new.welcome.resumed
        assert new.welcome.instance_id == "tool_loop-0"
        assert new.welcome.contract_version
        assert new.welcome.capacity == CollectConfig().capacity
        (unknown,) = await converse(mesh, hello(stream_id="another-one", last_cursor=5))
        assert not unknown.welcome.resumed
        # Whoever did not hear that and asks once more is told again.
        (once_more,) = await converse(mesh, hello(stream_id="another-one", last_cursor=5))
        assert not once_more.welcome.resumed


async def test_another_connection_takes_the_stream_over(path: str) -> None:
    models = {"policy": ScriptedModel([says("Hello.")], repeat=True)}
    async with running(path, TinyEnvironment(), models) as mesh:
        starts = agent_pb2.CollectStarts(starts=[agent_pb2.CollectStart(request=ask())])
        first = asyncio.create_task(
            converse(mesh, hello(credit=2), agent_pb2.CollectRequest(starts=starts), wait=True)
        )
        await until(lambda: mesh.environment.closed)
        welcome, *rest = await converse(mesh, hello(credit=50))
        assert welcome.welcome.resumed
        with pytest.raises(MeshError, match="CALLER_CANCELLED"):
            await first
        events = [event for one in rest for event in one.events.events]
        assert kinds(events) == ["started", "model_call_completed", "verified", "completed"]
