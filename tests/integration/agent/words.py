"""Words that the tests of the agent service share: scripts, tools, what came of it."""

from __future__ import annotations

import asyncio
from typing import Any

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_responses import new_message
from gymmesh_runtime.errors import MeshError, from_status
from tests.unit.agent.servicers import (
    ScriptedModel,
    Step,
    Tool,
    ok,
)
from tests.unit.agent.streams import Events, kinds

Reason = errors_pb2.ErrorReason
Boundary = rollout_pb2.Boundary
Outcomes = rollout_pb2.ToolOutcome


def cut(reason: str) -> dict[str, Any]:
    return {"status": "incomplete", "incomplete_details": {"reason": reason}}


def policy(*steps: Step, **more: Any) -> dict[str, ScriptedModel]:
    return {"policy": ScriptedModel(list(steps), **more)}


def fixed(text: str, *, done: bool = False, reward: float | None = None) -> Tool:
    async def run(arguments: bytes) -> resource_pb2.CallToolResponse:
        answer = ok(text, done=done)
        if reward is not None:
            answer.reward = reward
        return answer

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
