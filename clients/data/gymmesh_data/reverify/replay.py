"""Brings a new session to the state of a rollout's session, by repeating the rollout's tool calls.

For rollouts whose session has ended and whose state was not kept. The environment must declare its
tools replayable: they return the same answers in a new session of the same task and seed. Each
answer is compared with the stored answer.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_runtime.errors import MeshError

_SHOWN: Final = 60
_CLOSE_S: Final = 10.0


class Difference(NamedTuple):
    """A tool's answer that differs from the stored answer."""

    tool: str
    call_id: str
    stored: str
    now: str

    def __str__(self) -> str:
        return (
            f"{self.tool} ({self.call_id}) answered {self.stored!r} in the rollout, "
            f"{self.now!r} in the replay"
        )


@dataclass(frozen=True, slots=True)
class Replayed:
    """A session in which the stored tool calls were made again. `calls`: how many."""

    session_id: str
    calls: int
    differences: list[Difference]


@asynccontextmanager
async def replayed(
    peer: Any, request: verify_pb2.VerifyRequest, timeout_s: float
) -> AsyncIterator[Replayed]:
    """Opens a session for the task of a request, of its seed, and makes the calls of its
    transcript; closes it in the end. Raises MeshError where the environment does.

    Args:
        peer: the resource service that holds the session.
        timeout_s: seconds for each call.
    """
    # A further judgement of the same rollout is another session.
    name = f"reverify-{uuid.uuid4().hex}"
    creation = resource_pb2.CreateSessionRequest(
        task=request.task,
        seed=request.task.seed,
        request_id=name,
        rollout_id=request.rollout_id,
        attempt=request.attempt,
    )
    opened = await peer.CreateSession(creation, timeout=timeout_s)
    try:
        calls, differences = 0, list[Difference]()
        for call, stored in tool_calls(request.transcript):
            asked = resource_pb2.CallToolRequest(
                session_id=opened.session_id,
                name=call.name,
                arguments=call.arguments,
                call_id=call.call_id,
                request_id=f"{name}/{calls}",
            )
            answer = await peer.CallTool(asked, timeout=timeout_s)
            calls += 1
            if not _same(stored, answer):
                told = Difference(call.name, call.call_id, _text(stored), _text(answer))
                differences.append(told)
        yield Replayed(opened.session_id, calls, differences)
    finally:
        with suppress(MeshError):  # the environment closes it when it is idle for long enough
            closing = resource_pb2.CloseSessionRequest(session_id=opened.session_id)
            await peer.CloseSession(closing, timeout=_CLOSE_S)


def tool_calls(
    transcript: Iterator[responses_pb2.Item] | Any,
) -> Iterator[tuple[responses_pb2.FunctionCall, responses_pb2.FunctionCallOutput]]:
    """The answered tool calls, each with its answer, in the order of the answers. Pure."""
    asked: dict[str, list[responses_pb2.FunctionCall]] = {}
    for item in transcript:
        if item.HasField("function_call"):
            asked.setdefault(item.function_call.call_id, []).append(item.function_call)
        elif item.HasField("function_call_output"):
            waiting = asked.get(item.function_call_output.call_id)
            if waiting:
                yield waiting.pop(0), item.function_call_output


def _same(stored: responses_pb2.FunctionCallOutput, answer: resource_pb2.CallToolResponse) -> bool:
    if answer.HasField("parts"):
        return stored.HasField("parts") and stored.parts == answer.parts
    return not stored.HasField("parts") and stored.text == answer.text


def _text(answer: responses_pb2.FunctionCallOutput | resource_pb2.CallToolResponse) -> str:
    """The beginning of an answer, for people."""
    if answer.HasField("parts"):
        return "content parts"
    text = answer.text.decode("utf-8", "replace")
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 2]} …"
