"""What a verifier judges, from the messages that TRL made of a completion. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_responses import dumps, function_call_output, item_from_json

_NO_OBJECT: Final = (list, int, float)


@dataclass(frozen=True, slots=True)
class CalledTool:
    """A call that reached the environment. `done`: with it the episode was over."""

    name: str
    call_id: str
    done: bool = False


@dataclass(frozen=True, slots=True)
class EpisodeTranscript:
    """The items after the prompt, and why the rollout stopped.

    Attributes:
        after_done: messages that came after the episode was over, which are not judged.
    """

    items: list[responses_pb2.Item]
    stop_reason: pb.StopReason.ValueType
    after_done: int = 0


def transcript_of(
    messages: Sequence[Mapping[str, Any]], called: Sequence[CalledTool], *, cut_short: bool
) -> EpisodeTranscript:
    """The transcript of a completion.

    TRL has parsed the arguments of tool calls, so they are written anew. An answer to a call that
    TRL took back, since it was too long, is not in it.

    Args:
        called: the environment's calls in order.
        cut_short: whether the completion ends without a stop token.
    """
    items: list[responses_pb2.Item] = []
    left = list(called)
    waiting: list[tuple[str, str]] = []  # the calls of the last answer that have no output yet
    place = 0
    for place, message in enumerate(messages):
        if message.get("role") == "tool":
            call_id = _take(waiting, str(message.get("name")))
            items.append(function_call_output(call_id, str(message.get("content"))))
            continue
        if any(one.done for one in called[: len(called) - len(left)]):
            return EpisodeTranscript(items, pb.STOP_REASON_ENVIRONMENT_DONE, len(messages) - place)
        items += _said(message)
        waiting = []
        for number, call in enumerate(message.get("tool_calls") or ()):
            function = call.get("function") or call
            name = str(function.get("name"))
            arguments = function.get("arguments")
            # TRL itself answers a call of no tool, or with arguments that Python cannot pass on.
            reached = bool(left) and left[0].name == name and not isinstance(arguments, _NO_OBJECT)
            call_id = left.pop(0).call_id if reached else f"trl-{place}-{number}"
            waiting.append((name, call_id))
            items.append(_call(name, arguments, call_id))
    if any(one.done for one in called[: len(called) - len(left)]):
        return EpisodeTranscript(items, pb.STOP_REASON_ENVIRONMENT_DONE)
    taken_back = {one.call_id for one in called} & {call_id for _, call_id in waiting}
    nothing_said = bool(messages) and messages[-1].get("role") == "tool"
    if cut_short or taken_back or nothing_said:
        return EpisodeTranscript(items, pb.STOP_REASON_MAX_OUTPUT_TOKENS)
    stopped = pb.STOP_REASON_MAX_STEPS if waiting else pb.STOP_REASON_MODEL_FINISHED
    return EpisodeTranscript(items, stopped)


def _take(waiting: list[tuple[str, str]], name: str) -> str:
    """The id of the first call of this name that has no output yet."""
    for place, (one, call_id) in enumerate(waiting):
        if one == name:
            del waiting[place]
            return call_id
    return ""


def _said(message: Mapping[str, Any]) -> list[responses_pb2.Item]:
    """The reasoning and the text of an answer."""
    found = []
    thought = message.get("reasoning_content") or message.get("thinking")
    if isinstance(thought, str) and thought:
        content = [{"type": "reasoning_text", "text": thought}]
        found.append(item_from_json({"type": "reasoning", "summary": [], "content": content}))
    text = message.get("content")
    if isinstance(text, str) and (text or not (thought or message.get("tool_calls"))):
        part = {"type": "output_text", "text": text, "annotations": []}
        found.append(item_from_json({"type": "message", "role": "assistant", "content": [part]}))
    return found


def _call(name: str, arguments: Any, call_id: str) -> responses_pb2.Item:
    if not isinstance(arguments, str):
        arguments = dumps({} if arguments is None else arguments).decode("utf-8", "surrogatepass")
    return item_from_json(
        {"type": "function_call", "name": name, "arguments": arguments, "call_id": call_id}
    )
