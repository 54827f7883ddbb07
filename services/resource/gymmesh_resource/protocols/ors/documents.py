"""The JSON documents of ORS. Pure.

Format: `ors.types` of ors-sdk 0.1, with what `openreward.environments.types` 0.1.167 adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.protocols.content import (
    ShownImage,
    ShownMessage,
    ShownPart,
    messages_of,
    schema_of,
    text_of_parts,
    verdict_document,
)
from gymmesh_resource.protocols.facade import ANSWER
from gymmesh_resource.protocols.session import ProtocolSession, ProtocolStep
from gymmesh_responses import JsonValue

_WRONG_CALLS: Final = {
    rollout_pb2.TOOL_OUTCOME_BAD_ARGUMENTS: "input_validation",
    rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL: "not_found",
}


def tools_document(
    tools: Sequence[responses_pb2.FunctionTool],
    answer: responses_pb2.FunctionTool,
    *,
    answer_ends: bool,
) -> dict[str, JsonValue]:
    """The tools, the answer tool among them for clients that know no other way to answer.

    `answer_ends`: the policy's plain message is the answer, for clients that know terminal tools.
    """
    terminal: JsonValue = None
    if answer_ends:
        terminal = {"name": answer.name, "arg": ANSWER, "description": answer.description}
    return {
        "tools": [
            {"name": one.name, "description": one.description, "input_schema": schema_of(one)}
            for one in (*tools, answer)
        ],
        "terminal_tool": terminal,
    }


def prompt_document(session: ProtocolSession) -> list[JsonValue]:
    """The prompt as blocks; each has the role of the message that it is from."""
    return [
        _block(part, said.role)
        for said in messages_of(session.task, session.first_items)
        for part in said.parts
    ]


def messages_document(session: ProtocolSession) -> list[JsonValue]:
    """The prompt as messages."""
    return [_message(said) for said in messages_of(session.task, session.first_items)]


def step_document(step: ProtocolStep) -> dict[str, JsonValue]:
    """The result of a call: an answer for the policy with its reward, or the error of the call.

    A tool's own error is also an answer, since it tells the policy what to correct.
    """
    wrong = _WRONG_CALLS.get(step.outcome)
    if wrong is not None and not step.done:
        return refusal_document(text_of_parts(step.parts), wrong)
    metadata: dict[str, JsonValue] = {}
    if step.outcome != rollout_pb2.TOOL_OUTCOME_OK:
        metadata["is_error"] = True
    if step.verification is not None:
        metadata["verification"] = verdict_document(step.verification)
    output: JsonValue = {
        "blocks": [_block(part) for part in step.parts],
        "metadata": metadata or None,
        "reward": step.reward,
        "finished": step.done,
    }
    return {"ok": True, "output": output}


def refusal_document(why: str, reason: str) -> dict[str, JsonValue]:
    """A call that was not made."""
    return {"ok": False, "error": why, "reason": reason}


def _message(said: ShownMessage) -> JsonValue:
    role = said.role if said.role in ("system", "user", "assistant") else "user"
    return {"role": role, "blocks": [_block(part) for part in said.parts], "detail": None}


def _block(part: ShownPart, role: str = "") -> JsonValue:
    detail: JsonValue = {"role": role} if role else None
    if isinstance(part, ShownImage):
        return {"type": "image", "data": part.data, "mimeType": part.media_type, "detail": detail}
    return {"type": "text", "text": part, "detail": detail}
