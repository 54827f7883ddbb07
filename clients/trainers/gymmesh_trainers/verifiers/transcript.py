"""What a verifier judges, from the messages of a trace. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_responses import function_call_output, item_from_json

_STOPS: Final = {
    "max_turns": pb.STOP_REASON_MAX_STEPS,
    "max_output_tokens": pb.STOP_REASON_MAX_OUTPUT_TOKENS,
    "max_total_tokens": pb.STOP_REASON_CONTEXT_LENGTH,
    "max_input_tokens": pb.STOP_REASON_CONTEXT_LENGTH,
    "agent_timeout": pb.STOP_REASON_PROGRAM_TIMEOUT,
}


class NotOneConversation(ValueError):
    """A trace with several conversations, although a verifier gets one."""


def items_of(branches: Sequence[Any], tools: Iterable[str]) -> list[responses_pb2.Item]:
    """The items after the prompt, of a trace's branches. Raises NotOneConversation.

    A conversation has several branches where the chat template rendered its history anew: each
    branch then has the first messages of the last one.

    tools: the names of the session's tools; some harnesses put a prefix before them.
    """
    if not branches:
        return []
    last = [node.message for node in branches[-1].nodes]
    identities = [_identity(one) for one in last]
    sampled: dict[int, Any] = {}
    for branch in branches:
        own = [_identity(node.message) for node in branch.nodes]
        answers = {place: node for place, node in enumerate(branch.nodes) if node.sampled}
        twice = any(sampled.get(place, node) is not node for place, node in answers.items())
        if twice or own != identities[: len(own)]:
            raise NotOneConversation(
                f"the trace has {len(branches)} conversations (compaction, sub-agents), but the "
                "environment scores one"
            )
        sampled |= answers
    names = sorted(tools, key=len, reverse=True)
    found: list[responses_pb2.Item] = []
    for place in range(min(sampled, default=len(last)), len(last)):
        # As the model said it: a harness may send an answer back without its reasoning.
        message = sampled[place].message if place in sampled else last[place]
        found += _items(message, names)
    return found


def with_outputs(
    items: Sequence[responses_pb2.Item], calls: Sequence[tuple[str, str]]
) -> list[responses_pb2.Item]:
    """The items, with an answer to each call that reached the environment.

    A trace has answers only once the model was called with them, so those of the last calls are
    missing where the episode ended with them. calls: names and answers, in order.
    """
    answered = {
        item.function_call_output.call_id
        for item in items
        if item.WhichOneof("kind") == "function_call_output"
    }
    left = list(calls)
    found = list(items)
    for item in items:
        if item.WhichOneof("kind") != "function_call":
            continue
        call = item.function_call
        place = next((n for n, (name, _) in enumerate(left) if name == call.name), None)
        if place is None:
            continue
        _, text = left.pop(place)
        if call.call_id not in answered:
            found.append(function_call_output(call.call_id, text))
    return found


def stop_reason_of(trace: Any, *, done: bool) -> pb.StopReason.ValueType:
    """Why a rollout ended. done: the environment said that the episode is over."""
    if done:
        return pb.STOP_REASON_ENVIRONMENT_DONE
    if trace.stop_condition in _STOPS:
        return _STOPS[trace.stop_condition]
    if trace.is_truncated:
        return pb.STOP_REASON_MAX_OUTPUT_TOKENS
    return pb.STOP_REASON_MODEL_FINISHED


def _identity(message: Any) -> tuple[object, ...]:
    """What two messages have in common that are the same one, reasoning aside."""
    content = message.content
    if isinstance(content, list):
        content = "".join(part.text for part in content if part.type == "text")
    calls = [(one.id, one.name, one.arguments) for one in getattr(message, "tool_calls", ()) or ()]
    return message.role, content or "", calls, getattr(message, "tool_call_id", None)


def _items(message: Any, names: Sequence[str]) -> list[responses_pb2.Item]:
    if message.role == "tool":
        return [function_call_output(message.tool_call_id, _text(message.content))]
    if message.role != "assistant":
        content = [{"type": "input_text", "text": _text(message.content)}]
        return [item_from_json({"type": "message", "role": message.role, "content": content})]
    found = []
    if message.reasoning_content:
        content = [{"type": "reasoning_text", "text": message.reasoning_content}]
        found.append(item_from_json({"type": "reasoning", "summary": [], "content": content}))
    if message.content or not message.tool_calls:
        part: dict[str, Any] = {"type": "output_text", "text": message.content or ""}
        part["annotations"] = []
        found.append(item_from_json({"type": "message", "role": "assistant", "content": [part]}))
    found += [
        item_from_json(
            {
                "type": "function_call",
                "name": _own_name(call.name, names),
                "arguments": call.arguments,
                "call_id": call.id,
            }
        )
        for call in message.tool_calls or ()
    ]
    return found


def _own_name(name: str, names: Sequence[str]) -> str:
    """The environment's name of a tool that a harness calls `mcp__server__tool`, say."""
    if name in names:
        return name
    return next((one for one in names if name.endswith(f"__{one}")), name)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content if part.type == "text")
