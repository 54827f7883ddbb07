"""One case's script: what the scripted services answer, and what they were asked.

A script is plain data (the `world` of a case):

    session: {response: CreateSessionResponse} | {error: …}
    model:   [{response: CreateResponseResponse} | {error: …} | {wait: true}, …], one a call;
             an error or a wait is met again by every retry; `wait: 0.5` holds what stands beside
             it back for so many seconds
    tools:   {call_id: {response: CallToolResponse} | {error: …} | {wait: true}}; `after: call_id`
             holds the answer back until that call has arrived, at most for a moment; with
             `strictly: true` the call fails when the other does not arrive
    turns:   [{response: NextTurnResponse} | {error: …}, …]
    verify:  {response: VerifyResponse} | {error: …} | {wait: true}; absent: VERIFIED, 1.0

Messages are proto JSON; an error is {code, reason, message, metadata, usage}; `usage`: what models
consumed before it, a list of ModelCallUsage.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import grpc
from google.protobuf import json_format
from google.protobuf.message import Message

from gymmesh.model.v1 import model_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_conformance.cases import to_plain
from gymmesh_conformance.errors import CallError, make_error

_FOREVER_S: Final = 30.0  # longer than any case runs; bounded, so that nothing outlives a test
_MOMENT_S: Final = 0.3
_STRICT_S: Final = 5.0
_RIGHT: Final = {
    "response": {
        "verification": {
            "status": "VERIFICATION_STATUS_VERIFIED",
            "reward": 1.0,
            "verifier": "scripted",
            "verifier_version": "1",
        }
    }
}

M = TypeVar("M", bound=Message)


class Script:
    """The answers of one case, and the record of what was asked."""

    def __init__(self, case_id: str, world: Mapping[str, Any]) -> None:
        self.case_id = case_id
        self._world = world
        self.violations: list[str] = []
        opened = world.get("session", {}).get("response", {})
        self._tools_in_order = bool(opened.get("tools_in_order"))
        self._tool_calls_open = 0
        self.credentials: list[str] = []  # those that calls came with
        self.longest_s = 0.0  # the most time that a call came with
        self.counts: Counter[str] = Counter()
        self.model_requests: list[tuple[str, model_pb2.CreateResponseRequest]] = []
        self.answered: list[list[responses_pb2.Item]] = []
        self.tool_requests: list[resource_pb2.CallToolRequest] = []
        self.turn_requests: list[resource_pb2.NextTurnRequest] = []
        self.session_requests: list[resource_pb2.CreateSessionRequest] = []
        self.verify_requests: list[verify_pb2.VerifyRequest] = []
        self._answers: dict[tuple[str, str], Message] = {}
        self._arrived: dict[str, asyncio.Event] = {}
        self._turns_taken = 0
        self._given: list[tuple[Message, bytes]] = []

    def complaints(self) -> list[str]:
        """What the caller did that the contract forbids, changes to answers included."""
        changed = [
            f"a {type(answer).__name__} was changed by its receiver"
            for answer, data in self._given
            if answer.SerializeToString(deterministic=True) != data
        ]
        return [*self.violations, *changed]

    def give(self, answer: M) -> M:
        """Hands an answer out, remembering what it was: nobody changes a message received."""
        self._given.append((answer, answer.SerializeToString(deterministic=True)))
        return answer

    def record(self) -> dict[str, Any]:
        """What was asked, as data for a case's `seen`."""
        return {
            **{name: self.counts[name] for name in ("opened", "closed", "cancelled")},
            "violations": list(self.violations),
            "credentials": list(self.credentials),
            "longest_s": self.longest_s,
            "model": [{"name": name, **to_plain(one)} for name, one in self.model_requests],
            "tools": [to_plain(one) for one in self.tool_requests],
            "turns": [to_plain(one) for one in self.turn_requests],
            "sessions": [to_plain(one) for one in self.session_requests],
            "verify": [to_plain(one) for one in self.verify_requests],
        }

    async def session(
        self, request: resource_pb2.CreateSessionRequest
    ) -> resource_pb2.CreateSessionResponse:
        """Answers CreateSession."""
        self.session_requests.append(request)
        entry = self._world.get("session", {"response": {}})
        return await self._play(entry, resource_pb2.CreateSessionResponse)

    async def model(
        self, name: str, request: model_pb2.CreateResponseRequest
    ) -> model_pb2.CreateResponseResponse:
        """Answers CreateResponse; the same request_id gets the same answer."""
        self.model_requests.append((name, request))
        self._check_model_request(request)
        key = ("model", request.request_id)
        if request.request_id and key in self._answers:
            answer = model_pb2.CreateResponseResponse()
            answer.CopyFrom(self._stored(key, model_pb2.CreateResponseResponse))
            answer.from_cache = True
            return self.give(answer)
        entries = self._world.get("model", [])
        if len(self.answered) >= len(entries):
            self.violations.append(f"a model call more than the {len(entries)} of the script")
            raise make_error(
                "MODEL_ANSWER_INVALID", grpc.StatusCode.INTERNAL, "the script is at its end"
            )
        place = len(self.answered)
        answer = await self._play(entries[place], model_pb2.CreateResponseResponse)
        answer.call_id = request.call_id or f"call-{place + 1}"
        self._answers[key] = answer
        self.answered.append(whole_input(request.params))
        return self.give(answer)

    async def tool(self, request: resource_pb2.CallToolRequest) -> resource_pb2.CallToolResponse:
        """Answers CallTool; the same request_id gets the same answer."""
        key = ("tool", request.request_id)
        if key in self._answers:
            return self._stored(key, resource_pb2.CallToolResponse)
        if any(one.request_id == request.request_id for one in self.tool_requests):
            self.violations.append(f"the request_id {request.request_id!r} is used for two calls")
        self.tool_requests.append(request)
        self._event(request.call_id).set()
        entry = self._world.get("tools", {}).get(request.call_id)
        if entry is None:
            self.violations.append(f"a tool call that the script lacks: {request.call_id!r}")
            entry = {"error": {"code": "INTERNAL", "reason": "ENVIRONMENT_FAULT"}}
        if self._tools_in_order and self._tool_calls_open:
            self.violations.append(
                f"the tool call {request.call_id!r} was sent before the answer to the previous "
                "call, though `tools_in_order` of the session is true"
            )
        self._tool_calls_open += 1
        try:
            if "after" in entry:
                await self._await_call(entry)
            answer = await self._play(entry, resource_pb2.CallToolResponse)
        finally:
            self._tool_calls_open -= 1
        self._answers[key] = answer
        return self.give(answer)

    async def turn(self, request: resource_pb2.NextTurnRequest) -> resource_pb2.NextTurnResponse:
        """Answers NextTurn; the same request_id gets the same answer."""
        key = ("turn", request.request_id)
        if key in self._answers:
            return self._stored(key, resource_pb2.NextTurnResponse)
        self.turn_requests.append(request)
        entries = self._world.get("turns", [])
        if self._turns_taken >= len(entries):
            self.violations.append(f"a turn more than the {len(entries)} of the script")
            raise make_error(
                "SESSION_STATE", grpc.StatusCode.FAILED_PRECONDITION, "the episode is over"
            )
        answer = await self._play(entries[self._turns_taken], resource_pb2.NextTurnResponse)
        self._turns_taken += 1
        self._answers[key] = answer
        return self.give(answer)

    async def verify(self, request: verify_pb2.VerifyRequest) -> verify_pb2.VerifyResponse:
        """Answers Verify."""
        self.verify_requests.append(request)
        entry = self._world.get("verify", _RIGHT)
        return self.give(await self._play(entry, verify_pb2.VerifyResponse))

    def _check_model_request(self, request: model_pb2.CreateResponseRequest) -> None:
        if f"secret-{self.case_id}".encode() in request.SerializeToString():
            self.violations.append("the task's payload was shown to the model")
        if request.conversation.parent_call_id:
            raise make_error(
                "CONVERSATION_UNKNOWN",
                grpc.StatusCode.FAILED_PRECONDITION,
                "this model keeps no conversations",
                conversation_id=request.conversation.id,
            )

    async def _await_call(self, entry: Mapping[str, Any]) -> None:
        strictly = entry.get("strictly", False)
        try:
            async with asyncio.timeout(_STRICT_S if strictly else _MOMENT_S):
                await self._event(entry["after"]).wait()
        except TimeoutError:
            if strictly:
                self.violations.append(f"the call {entry['after']!r} did not come side by side")

    async def _play(self, entry: Mapping[str, Any], message_class: type[M]) -> M:
        wait = entry.get("wait")
        if wait:
            try:
                await asyncio.sleep(_FOREVER_S if wait is True else wait)
            except asyncio.CancelledError:
                self.counts["cancelled"] += 1
                raise
        if "error" in entry:
            raise error_of(entry["error"])
        return json_format.ParseDict(entry.get("response", {}), message_class())

    def _stored(self, key: tuple[str, str], message_class: type[M]) -> M:
        answer = self._answers[key]
        assert isinstance(answer, message_class)
        return answer

    def _event(self, call_id: str) -> asyncio.Event:
        return self._arrived.setdefault(call_id, asyncio.Event())


def error_of(data: Mapping[str, Any]) -> CallError:
    """An error as a script writes it."""
    metadata = {key: str(value) for key, value in data.get("metadata", {}).items()}
    code = grpc.StatusCode[data["code"]]
    usage = [
        json_format.ParseDict(one, rollout_pb2.ModelCallUsage()) for one in data.get("usage", ())
    ]
    text = data.get("message", "as scripted")
    return make_error(data["reason"], code, text, usage=usage, **metadata)


def whole_input(params: responses_pb2.ResponseParams) -> list[responses_pb2.Item]:
    """The input as items, also where it is plain text."""
    if params.HasField("input_text"):
        message = responses_pb2.Message(role="user", text=params.input_text)
        return [responses_pb2.Item(message=message)]
    return list(params.input)
