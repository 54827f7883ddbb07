"""A scripted model and a tiny environment, written on the stubs alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.sandbox.v1 import grant_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_responses import response_from_json, tool_from_json
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError

Reason = errors_pb2.ErrorReason
Step: TypeAlias = (
    "responses_pb2.Response | MeshError "
    "| Callable[[model_pb2.CreateResponseRequest], Awaitable[responses_pb2.Response]]"
)
Tool: TypeAlias = Callable[[bytes], Awaitable[resource_pb2.CallToolResponse]]


def says(text: str, *, tokens: int = 5, **more: Any) -> responses_pb2.Response:
    """An answer that is one message."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"type": "message", "role": "assistant", "status": "completed", "content": content}
    return answer(message, tokens=tokens, **more)


def calls(*functions: Mapping[str, Any], tokens: int = 5, **more: Any) -> responses_pb2.Response:
    """An answer that calls tools; each has `name`, `arguments`, `call_id` or lacks some."""
    items = [{"type": "function_call", **function} for function in functions]
    return answer(*items, tokens=tokens, **more)


def call(name: str, arguments: str = "{}", call_id: str = "f1") -> dict[str, Any]:
    return {"name": name, "arguments": arguments, "call_id": call_id}


def answer(*output: Any, tokens: int = 5, **more: Any) -> responses_pb2.Response:
    usage = {"input_tokens": 10, "output_tokens": tokens, "total_tokens": 10 + tokens}
    document = {"id": "r", "status": "completed", "output": list(output), "usage": usage, **more}
    return response_from_json(document)


@dataclass
class ScriptedModel:
    """Gives its answers in order; the last one again and again when `repeat` is set."""

    steps: Sequence[Step]
    repeat: bool = False
    requests: list[model_pb2.CreateResponseRequest] = field(default_factory=list)
    cancelled: int = 0

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, context: CallContext
    ) -> model_pb2.CreateResponseResponse:
        place = len(self.requests)
        self.requests.append(request)
        step = self.steps[min(place, len(self.steps) - 1) if self.repeat else place]
        if isinstance(step, MeshError):
            raise step
        if not isinstance(step, responses_pb2.Response):
            try:
                step = await step(request)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return model_pb2.CreateResponseResponse(response=step, call_id=request.call_id)


class StreamingModel(ScriptedModel):
    """Sends the answer's first message in pieces first."""

    async def StreamResponse(
        self, request: model_pb2.StreamResponseRequest, context: CallContext
    ) -> AsyncIterator[model_pb2.StreamResponseResponse]:
        whole = await self.CreateResponse(request.call, context)
        text = whole.response.output[0].message.parts.parts[0].output_text.text
        for letter in text:
            delta = model_pb2.ResponseDelta(text=letter.encode())
            yield model_pb2.StreamResponseResponse(delta=delta)
        yield model_pb2.StreamResponseResponse(completed=whole)


def ok(text: str, *, done: bool = False) -> resource_pb2.CallToolResponse:
    outcome = rollout_pb2.TOOL_OUTCOME_OK
    return resource_pb2.CallToolResponse(text=text.encode(), outcome=outcome, done=done)


def reward(value: float | None, **more: Any) -> rollout_pb2.Verification:
    status = rollout_pb2.VERIFICATION_STATUS_VERIFIED
    return rollout_pb2.Verification(status=status, reward=value, verifier="tiny", **more)


def tool(name: str, description: str = "") -> responses_pb2.Tool:
    return tool_from_json({"type": "function", "name": name, "description": description})


@dataclass
class TinyEnvironment:
    """An environment whose behaviour is its fields; says what was asked of it."""

    tools: Mapping[str, Tool] = field(default_factory=dict)
    turns: Sequence[resource_pb2.NextTurnResponse] = ()
    verdict: rollout_pb2.Verification | MeshError = field(default_factory=lambda: reward(1.0))
    create_errors: list[MeshError] = field(default_factory=list)
    create_gate: asyncio.Event | None = None
    items: Sequence[responses_pb2.Item] = ()
    sandboxes: Sequence[grant_pb2.SandboxGrant] = ()
    uses_sandboxes: Sequence[str] = ()
    judged_in: Sequence[rollout_pb2.SandboxOpened] = ()
    time_left: list[float] = field(default_factory=list)
    retry_safe: bool = True
    rule: resource_pb2.RewardRule.ValueType = resource_pb2.REWARD_RULE_VERIFIER_ONLY
    open: set[str] = field(default_factory=set)
    created: list[resource_pb2.CreateSessionRequest] = field(default_factory=list)
    called: list[resource_pb2.CallToolRequest] = field(default_factory=list)
    turned: list[resource_pb2.NextTurnRequest] = field(default_factory=list)
    verified: list[verify_pb2.VerifyRequest] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    described: int = 0

    async def GetEnvironment(
        self, request: resource_pb2.GetEnvironmentRequest, context: CallContext
    ) -> resource_pb2.GetEnvironmentResponse:
        self.described += 1
        return resource_pb2.GetEnvironmentResponse(
            name="tiny",
            version="7",
            multi_turn=bool(self.turns),
            retry_safe=self.retry_safe,
            reward_rule=self.rule,
            sandboxes=self.uses_sandboxes,
        )

    async def CreateSession(
        self, request: resource_pb2.CreateSessionRequest, context: CallContext
    ) -> resource_pb2.CreateSessionResponse:
        self.created.append(request)
        if self.create_errors:
            raise self.create_errors.pop(0)
        # The same request again is the same session, as the contract wants it.
        asked = list(dict.fromkeys(one.request_id for one in self.created))
        session_id = f"s{asked.index(request.request_id) + 1}"
        self.open.add(session_id)
        if self.create_gate is not None:
            await self.create_gate.wait()
        return resource_pb2.CreateSessionResponse(
            session_id=session_id,
            instance_id="tiny-0",
            tools=[tool(name, "the session's") for name in self.tools],
            items=self.items,
            sandboxes=self.sandboxes,
            seed=request.seed if request.HasField("seed") else 99,
            environment_version="7",
            multi_turn=bool(self.turns),
        )

    async def CallTool(
        self, request: resource_pb2.CallToolRequest, context: CallContext
    ) -> resource_pb2.CallToolResponse:
        self._check(request.session_id)
        self.called.append(request)
        self.time_left.append(context.time_remaining())
        if request.name not in self.tools:
            outcome = rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL
            return resource_pb2.CallToolResponse(text=b"no such tool", outcome=outcome)
        if not request.arguments.startswith(b"{"):
            outcome = rollout_pb2.TOOL_OUTCOME_BAD_ARGUMENTS
            return resource_pb2.CallToolResponse(text=b"not JSON", outcome=outcome)
        return await self.tools[request.name](request.arguments)

    async def NextTurn(
        self, request: resource_pb2.NextTurnRequest, context: CallContext
    ) -> resource_pb2.NextTurnResponse:
        self._check(request.session_id)
        self.turned.append(request)
        return self.turns[len(self.turned) - 1]

    async def Verify(
        self, request: verify_pb2.VerifyRequest, context: CallContext
    ) -> verify_pb2.VerifyResponse:
        self._check(request.session_id)
        self.verified.append(request)
        if isinstance(self.verdict, MeshError):
            raise self.verdict
        return verify_pb2.VerifyResponse(verification=self.verdict, sandboxes=self.judged_in)

    async def CloseSession(
        self, request: resource_pb2.CloseSessionRequest, context: CallContext
    ) -> resource_pb2.CloseSessionResponse:
        self.closed.append(request.session_id)
        self.open.discard(request.session_id)
        return resource_pb2.CloseSessionResponse()

    def _check(self, session_id: str) -> None:
        if session_id not in self.open:
            raise MeshError(Reason.ERROR_REASON_SESSION_NOT_FOUND, f"no session {session_id!r}")
