"""What an agent measures of its rollouts, and the exemplars that name them."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from gymmesh.model.v1 import model_pb2
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.serving.exposition import MetricsEndpoint
from tests.integration.agent.words import Reason, fixed, policy, raising
from tests.support.scraping import Counted
from tests.unit.agent.mesh import ask, running
from tests.unit.agent.servicers import ScriptedModel, TinyEnvironment, call, calls, says

ROLLOUT = {"agent": "tool_loop", "environment": "tiny"}


class Versioned(ScriptedModel):
    """Says that its weights change with each call, and that each waited 250 ms for a place."""

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, context: CallContext
    ) -> model_pb2.CreateResponseResponse:
        reply = await super().CreateResponse(request, context)
        reply.tokens.weights.add(version=10 * len(self.requests))
        reply.queue_us = 250_000
        return reply


@pytest.mark.parametrize("path", ["direct", "mux"])
async def test_a_completed_rollout(path: str) -> None:
    models = {"policy": Versioned([calls(call("look"), tokens=7), says("4", tokens=20)])}
    environment = TinyEnvironment(tools={"look": fixed("here")})
    counted = Counted()
    async with running(path, environment, models) as mesh:
        await mesh.run()
    stages = counted.by("gymmesh_rollout_stage_seconds_count", "stage", **ROLLOUT)
    once = {"create_session", "model_queue", "call_tool", "verify", "close_session"}
    assert {stage for stage, count in stages.items() if count == 1} >= once
    assert counted.of("gymmesh_rollout_stage_seconds_sum", stage="model_queue", **ROLLOUT) == (
        pytest.approx(0.5)
    )
    for name, value in {"model_calls": 2, "tool_calls": 1, "output_tokens": 27}.items():
        assert counted.of(f"gymmesh_rollout_{name}_sum", **ROLLOUT) == value
        assert counted.of(f"gymmesh_rollout_{name}_count", **ROLLOUT) == 1
    assert counted.of("gymmesh_rollout_weights_lag_versions_sum", **ROLLOUT) == 10
    assert counted.of("gymmesh_rollouts_total", outcome="completed", **ROLLOUT) == 1
    assert not counted.of("gymmesh_rollout_failures_total", **ROLLOUT)


async def test_a_failed_rollout_by_boundary_and_reason() -> None:
    environment = TinyEnvironment(tools={"look": raising(Reason.ERROR_REASON_TOOL_TIMEOUT)})
    counted = Counted()
    async with running("direct", environment, policy(calls(call("look")))) as mesh:
        await mesh.run()
    failures = {"boundary": "TOOL", "reason": "TOOL_TIMEOUT", **ROLLOUT}
    assert counted.of("gymmesh_rollout_failures_total") == 1
    assert counted.of("gymmesh_rollout_failures_total", **failures) == 1
    # The time that the failed call took is in its stage, and no length is counted.
    assert counted.of("gymmesh_rollout_stage_seconds_sum", stage="call_tool", **ROLLOUT) > 0
    assert not counted.of("gymmesh_rollout_output_tokens_count", **ROLLOUT)
    # No model call waited for a place, so the attempt does not count in that stage.
    assert counted.of("gymmesh_rollout_stage_seconds_count", stage="model", **ROLLOUT) == 1
    assert not counted.of("gymmesh_rollout_stage_seconds_count", stage="model_queue", **ROLLOUT)


async def scraped(endpoint: MetricsEndpoint, accept: str) -> str:
    url = f"http://{endpoint.address}/metrics"
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers={"Accept": accept}) as answer,
    ):
        assert answer.status == 200
        return await answer.text()


async def test_openmetrics_names_the_rollouts() -> None:
    request: Any = ask()
    request.rollout_id = 'exemplary-"1"\\'
    async with running("direct", TinyEnvironment(), policy(says("4"))) as mesh:
        await mesh.run(request)
    endpoint = MetricsEndpoint.start("127.0.0.1", 0)
    try:
        found = await scraped(endpoint, "application/openmetrics-text; version=1.0.0")
        plain = await scraped(endpoint, "text/plain")
    finally:
        endpoint.stop()
    shown = r'# {rollout_id="exemplary-\"1\"\\"}'
    for start in (
        "gymmesh_rollout_seconds_bucket{",
        "gymmesh_rollout_stage_seconds_bucket{",
        "gymmesh_rollouts_total{",
    ):
        assert any(line.startswith(start) and shown in line for line in found.splitlines()), start
    assert found.endswith("# EOF\n")
    assert "exemplary" not in plain
