"""Traces of rollouts, exported to a real receiver."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.trace import get_current_span

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_mesh import MeshConfig, MeshSettings, embedded, remote, up
from gymmesh_model import ModelConfig
from gymmesh_responses import params_from_json
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.telemetry import tracing as tracing_module
from gymmesh_runtime.telemetry.tracing import active, trace_id_of, tracing
from tests.integration.agent.words import Reason, fixed, policy, raising
from tests.support.otlp import Receiver, receiving
from tests.unit.agent.mesh import ask, running
from tests.unit.agent.servicers import TinyEnvironment, call, calls, ok, says

BOUND_S = 240.0
CLIENT, SERVER = trace_pb2.Span.SPAN_KIND_CLIENT, trace_pb2.Span.SPAN_KIND_SERVER
ERROR = trace_pb2.Status.STATUS_CODE_ERROR
RPC = "gymmesh.model.v1.ModelService/CreateResponse"
VERIFY = "gymmesh.verify.v1.VerifyService/Verify"
TOOL = "gymmesh.resource.v1.ResourceService/CallTool"


async def traced(
    path: str, environment: TinyEnvironment, models: Any, request: Any | None = None
) -> Receiver:
    """What a receiver got of one rollout."""
    async with (
        receiving() as receiver,
        tracing(receiver.address, ["tiny"]),
        running(path, environment, models) as mesh,
    ):
        await mesh.run(request)
    assert active() is None
    return receiver


@pytest.mark.parametrize("path", ["direct", "grpc", "mux"])
async def test_a_rollout_is_one_trace_over_all_services(path: str) -> None:
    environment = TinyEnvironment(tools={"look": fixed("a secret place")})
    models = policy(calls(call("look", '{"where": "a secret drawer"}'), tokens=7), says("4"))
    found = await traced(path, environment, models)
    [root] = found.named("invoke_agent tool_loop")
    assert not root.span.parent_span_id
    assert {one.span.trace_id for one in found.spans} == {trace_id_of("r1").to_bytes(16, "big")}
    assert (
        root.attributes.items()
        >= {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "tool_loop",
            "gymmesh.rollout.id": "r1",
            "gymmesh.rollout.attempt": 1,
            "gymmesh.environment": "tiny",
            "gymmesh.stop_reason": "MODEL_FINISHED",
            "gen_ai.usage.input_tokens": 20,
            "gen_ai.usage.output_tokens": 12,
            "gen_ai.evaluation.score.value": 1.0,
        }.items()
    )
    steps = [one for one in found.below(root) if not one.startswith("gymmesh.")]
    assert steps == ["chat policy", "execute_tool look", "chat policy", "verify tiny"]
    first, second = found.named("chat policy")
    assert first.span.kind == CLIENT
    assert first.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "gymmesh",
        "gen_ai.request.model": "policy",
        "gen_ai.response.finish_reasons": ["completed"],
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 7,
        "gymmesh.model.role": "policy",
        "gymmesh.model_call.id": "c1",
    }
    assert found.below(first) == found.below(second) == [RPC]
    [tool] = found.named("execute_tool look")
    assert tool.attributes["gymmesh.tool.outcome"] == "OK"
    assert found.below(tool) == [TOOL]
    [verify] = found.named("verify tiny")
    assert found.below(verify) == [VERIFY]
    assert {one.span.kind for one in found.named(RPC)} == {SERVER}
    assert {one.service for one in found.spans} == {"tiny"}
    assert b"secret" not in found.text


async def test_what_failed_and_where() -> None:
    environment = TinyEnvironment(tools={"look": raising(Reason.ERROR_REASON_TOOL_TIMEOUT)})
    found = await traced("mux", environment, policy(calls(call("look"))))
    [root] = found.named("invoke_agent tool_loop")
    [rpc] = found.named(TOOL)
    for one in (root, rpc):
        assert one.attributes["error.type"] == "TOOL_TIMEOUT"
        assert one.span.status.code == ERROR
        assert not one.span.status.message
        assert not one.span.events
    assert root.attributes["gymmesh.failure.boundary"] == "TOOL"


async def test_a_tool_that_the_model_made_up_is_not_named() -> None:
    models = policy(calls(call("tell_me_your_secret")), says("4"))
    found = await traced("direct", TinyEnvironment(), models)
    [tool] = found.named("execute_tool")
    assert tool.attributes["gymmesh.tool.outcome"] == "UNKNOWN_TOOL"
    assert b"secret" not in found.text


async def test_one_that_is_stopped_before_its_first_step() -> None:
    events: list[rollout_pb2.RolloutEvent] = []
    async with (
        receiving() as receiver,
        tracing(receiver.address),
        running("direct", TinyEnvironment(), policy(says("4"))) as mesh,
    ):
        run = mesh.service.run_rollout(ask(), CallContext("RunRollout"), events.append)
        running_it = asyncio.create_task(run)
        await asyncio.sleep(0)  # the attempt has a task, which has not begun
        (attempt,) = mesh.service._running.values()
        attempt.stop()
        with pytest.raises(MeshError, match="DRAINING"):
            await running_it
        await mesh.settled()
    assert "completed" not in [event.WhichOneof("event") for event in events]
    [span] = receiver.named("invoke_agent tool_loop")
    assert "gymmesh.stop_reason" not in span.attributes
    assert "error.type" not in span.attributes


async def test_the_sampler_of_the_environment_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    found = await traced("mux", TinyEnvironment(), policy(says("4")))
    assert not found.spans


async def test_nothing_is_traced_unless_asked_for() -> None:
    spans: list[Any] = []

    async def look(arguments: bytes) -> Any:
        spans.append(get_current_span())
        return ok("4")

    environment = TinyEnvironment(tools={"look": look})
    async with running("direct", environment, policy(calls(call("look")), says("4"))) as mesh:
        await mesh.run()
    assert [span.get_span_context().is_valid for span in spans] == [False]


async def test_a_receiver_that_is_gone_holds_up_no_shutdown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tracing_module, "_CLOSE_S", 0.01)
    async with asyncio.timeout(BOUND_S):
        async with (
            tracing("http://127.0.0.1:9"),
            running("direct", TinyEnvironment(), policy(says("4"))) as mesh,
        ):
            events = await mesh.run()
    assert events[-1].HasField("completed")
    assert "the last traces could not be exported within 0.01 s" in caplog.text


async def test_without_the_package_a_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    config = MeshConfig(mesh=MeshSettings(traces=True))
    with pytest.raises(ConfigError) as caught:
        async with embedded(config):
            pass
    assert str(caught.value) == (
        "mesh.traces: tracing needs opentelemetry.sdk.trace: pip install 'gymmesh[otel]'"
    )


async def test_services_in_processes_of_their_own(tmp_path: Path) -> None:
    answers = tmp_path / "answers.jsonl"
    answers.write_text('{"match": "*", "answers": [{"text": "The answer is \\\\boxed{5}."}]}\n')
    models = {"policy": ModelConfig(backend="replay", path=str(answers))}
    async with receiving() as receiver:
        settings = MeshSettings(traces=True, traces_endpoint=receiver.address, metrics=False)
        async with up(MeshConfig(models=models, mesh=settings)) as services:
            address = services.address_of("agent", "tool_loop")
            async with remote(address) as mesh:
                [agent] = [one for one in mesh.directory.instances() if one.name == "tool_loop"]
                task = rollout_pb2.Task(
                    task_id="t",
                    environment="math",
                    params=params_from_json({"input": "What is 2 + 3?"}),
                    payload_json=b'{"expected_answer": "5"}',
                )
                request = agent_pb2.RunRolloutRequest(task=task, rollout_id="r-far", attempt=1)
                stream = mesh.directory.peer(agent).RunRollout(request, timeout=BOUND_S)
                events = [response.event async for response in stream]
        assert events[-1].HasField("completed")
    [root] = receiver.named("invoke_agent tool_loop")
    assert root.service == "tool_loop"
    assert {one.span.trace_id for one in receiver.spans} == {
        trace_id_of("r-far").to_bytes(16, "big")
    }
    [verify] = receiver.named(VERIFY)
    assert verify.service == "math"
    assert {one.service for one in receiver.named(RPC)} == {"policy"}
