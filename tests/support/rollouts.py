"""Small rollouts for tests: an agent's events, and an agent that streams them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.agents import EventSink, StreamingAgent
from gymmesh_responses import dumps, new_message, params_from_json
from gymmesh_runtime.errors import MeshError

Events = list[pb.RolloutEvent]


def make_task(task_id: str = "t-1", **payload: object) -> pb.Task:
    """A task with one question; `payload` is what its verifier reads."""
    return pb.Task(
        task_id=task_id,
        environment="math",
        agent="tool_loop",
        params=params_from_json({"input": [{"role": "user", "content": "What is 2+3?"}]}),
        payload_json=dumps(payload),
    )


def make_events(
    rollout_id: str, attempt: int, *bodies: pb.RolloutEvent, task: pb.Task | None = None
) -> Events:
    """Frames bodies as the events of an attempt: `started` first, numbered, ended if complete."""
    begun = pb.RolloutEvent()
    begun.started.environment, begun.started.agent = "math", "tool_loop"
    if task is not None:
        begun.started.items.extend(task.params.input)
    events = []
    for number, body in enumerate([begun, *bodies], start=1):
        event = pb.RolloutEvent()
        event.CopyFrom(body)
        event.rollout_id, event.attempt, event.sequence = rollout_id, attempt, number
        event.record_time_unix_nano = 1_700_000_000_000_000_000 + number
        kind = event.WhichOneof("event")
        if kind in ("completed", "failed"):
            getattr(event, kind).events = number
        events.append(event)
    return events


def answer(text: str, call_id: str = "c1") -> pb.RolloutEvent:
    """A model call that answered with a message."""
    event = pb.RolloutEvent()
    call = event.model_call_completed
    call.call_id, call.model, call.trainable = call_id, "policy", True
    call.response.id, call.response.status = "resp-1", "completed"
    call.response.output.append(new_message("assistant", text))
    call.response.usage.input_tokens, call.response.usage.output_tokens = 10, 3
    return event


def verdict(reward: float | None, **evidence: object) -> pb.RolloutEvent:
    """A verdict; with no reward it is PENDING."""
    event = pb.RolloutEvent()
    verification = event.verified.verification
    verification.verifier, verification.verifier_version = "math", "1"
    if reward is None:
        verification.status = pb.VERIFICATION_STATUS_PENDING
        verification.reason = "with its group"
    else:
        verification.status, verification.reward = pb.VERIFICATION_STATUS_VERIFIED, reward
    if evidence:
        verification.evidence_json = dumps(evidence)
    return event


def completed() -> pb.RolloutEvent:
    """The end of a rollout whose model finished."""
    event = pb.RolloutEvent()
    event.completed.stop_reason = pb.STOP_REASON_MODEL_FINISHED
    return event


def failed(retry_safe: bool = True) -> pb.RolloutEvent:
    """The end of a rollout whose model endpoint is down."""
    event = pb.RolloutEvent()
    failure = event.failed.failure
    failure.boundary, failure.retry_safe, failure.component = (
        pb.BOUNDARY_MODEL,
        retry_safe,
        "policy",
    )
    failure.status.code, failure.status.message = 14, "the endpoint is down"
    return event


Script = Callable[[agent_pb2.RunRolloutRequest], Sequence[pb.RolloutEvent]]


class NoGroups:
    """An AgentPeer whose class streams events by a RunRollout of its own; judges no groups."""

    def RunRollout(
        self, request: agent_pb2.RunRolloutRequest, *, timeout: float
    ) -> AsyncGenerator[agent_pb2.RunRolloutResponse, None]:
        """Streams an attempt's events."""
        raise NotImplementedError

    async def run_rollout(
        self, request: agent_pb2.RunRolloutRequest, *, timeout: float, sink: EventSink
    ) -> None:
        """Runs an attempt."""
        await StreamingAgent(self).run_rollout(request, timeout=timeout, sink=sink)

    async def JudgeGroup(
        self, request: agent_pb2.JudgeGroupRequest, *, timeout: float
    ) -> agent_pb2.JudgeGroupResponse:
        raise MeshError(errors_pb2.ERROR_REASON_NOT_OFFERED, "judges no groups")


class ScriptedAgent(NoGroups):
    """An agent service that streams the events that a script gives for a request.

    `requests` are those received; `most` is how many ran side by side at most.
    """

    def __init__(self, script: Script, *, pause_s: float = 0.0) -> None:
        self.requests: list[agent_pb2.RunRolloutRequest] = []
        self.most = 0
        self._script = script
        self._pause_s = pause_s
        self._running = 0

    async def RunRollout(
        self, request: agent_pb2.RunRolloutRequest, *, timeout: float
    ) -> AsyncGenerator[agent_pb2.RunRolloutResponse, None]:
        self.requests.append(request)
        self._running += 1
        self.most = max(self.most, self._running)
        try:
            for event in self._script(request):
                await asyncio.sleep(self._pause_s)
                yield agent_pb2.RunRolloutResponse(event=event)
        finally:
            self._running -= 1
