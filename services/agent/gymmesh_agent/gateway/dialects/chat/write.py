"""Writes answers of Chat Completions, whole and as chunks. Pure.

A chat answer is one message, so the texts, refusals and reasoning of several items are joined:
texts directly, reasoning with a blank line between.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gymmesh_agent.gateway.dialects.output import (
    OutputCall,
    OutputMessage,
    OutputOpaque,
    OutputReasoning,
    counts_of,
    finish_in,
    model_of,
    output_of,
    response_id,
)
from gymmesh_agent.gateway.dialects.sse import pieces, plain_event
from gymmesh_agent.gateway.request import GatewayAnswer, GatewayRequest, Json
from gymmesh_responses import Finish

DONE: Final = b"data: [DONE]\n\n"
"""The last event of every stream."""


class ChatAnswer:
    """An answer as the one message of a chat completion.

    Attributes:
        text: the texts, joined; empty if there is none.
        refusal: the refusals, joined.
        reasoning: the reasoning, joined.
        calls: the tool calls in the API's form; `arguments` is exactly what the model wrote.
        logprobs: the tokens' log probabilities, if the answer has them.
        finish: the finish_reason.
    """

    def __init__(self, answer: GatewayAnswer) -> None:
        items = output_of(answer)
        messages = [item for item in items if isinstance(item, OutputMessage)]
        thoughts = [item.text for item in items if isinstance(item, OutputReasoning)]
        self.text = "".join(message.text for message in messages)
        self.refusal = "".join(message.refusal for message in messages)
        self.reasoning = "\n\n".join(thought for thought in thoughts if thought)
        self.calls = [made for item in items if (made := _call(item)) is not None]
        self.logprobs = [
            token
            for message in messages
            for part in message.parts
            for token in part.get("logprobs") or ()
        ]
        self.finish = _finish(finish_in(answer), bool(self.calls))


def chat_document(request: GatewayRequest, answer: GatewayAnswer) -> Json:
    """The whole answer."""
    said = ChatAnswer(answer)
    message: Json = {
        "role": "assistant",
        "content": None if not said.text and (said.calls or said.refusal) else said.text,
        "refusal": said.refusal or None,
    }
    if said.reasoning and request.reply.reasoning:
        message["reasoning_content"] = said.reasoning
    if said.calls:
        message["tool_calls"] = said.calls
    choice = {
        "index": 0,
        "message": message,
        "logprobs": _logprobs(said),
        "finish_reason": said.finish,
    }
    head = _head(request, answer, "chat.completion")
    return {**head, "choices": [choice], "usage": _usage(answer)}


def chat_events(request: GatewayRequest, answer: GatewayAnswer) -> Iterator[bytes]:
    """The chunks of the same answer: reasoning, then the text, then the calls."""
    said = ChatAnswer(answer)
    head = _head(request, answer, "chat.completion.chunk")
    if request.reply.stream_usage:
        head["usage"] = None

    def chunk(delta: Json, finish: str | None = None, logprobs: Any = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return plain_event({**head, "choices": [choice]})

    yield chunk({"role": "assistant", "content": None if said.calls and not said.text else ""})
    if request.reply.reasoning:
        for piece in pieces(said.reasoning):
            yield chunk({"reasoning_content": piece})
    for position, piece in enumerate(pieces(said.text)):
        yield chunk({"content": piece}, logprobs=None if position else _logprobs(said))
    for piece in pieces(said.refusal):
        yield chunk({"refusal": piece})
    for index, call in enumerate(said.calls):
        for delta in _call_deltas(call):
            yield chunk({"tool_calls": [{"index": index, **delta}]})
    yield chunk({}, said.finish)
    if request.reply.stream_usage:
        yield plain_event({**head, "choices": [], "usage": _usage(answer)})
    yield DONE


def _head(request: GatewayRequest, answer: GatewayAnswer, kind: str) -> Json:
    return {
        "id": response_id(answer, "chat"),
        "object": kind,
        "created": answer.created,
        "model": model_of(request, answer),
    }


def _call(item: object) -> Json | None:
    if isinstance(item, OutputCall):
        function = {"name": item.name, "arguments": item.arguments}
        return {"id": item.minted.id("call"), "type": "function", "function": function}
    if isinstance(item, OutputOpaque) and item.document.get("type") == "custom_tool_call":
        custom = {key: item.document.get(key) for key in ("name", "input")}
        return {"id": item.minted.id("call"), "type": "custom", "custom": custom}
    return None


def _call_deltas(call: Json) -> Iterator[Json]:
    kind = call["type"]
    key = "arguments" if kind == "function" else "input"
    text = call[kind][key]
    yield {**call, kind: {**call[kind], key: ""}}
    for piece in pieces(text if isinstance(text, str) else ""):
        yield {kind: {key: piece}}


def _finish(finish: Finish, calls: bool) -> str:
    if finish is Finish.FILTERED:
        return "content_filter"
    if finish is Finish.LENGTH:
        return "length"
    return "tool_calls" if calls else "stop"


def _logprobs(said: ChatAnswer) -> Json | None:
    return {"content": said.logprobs, "refusal": None} if said.logprobs else None


def _usage(answer: GatewayAnswer) -> Json:
    counts = counts_of(answer)
    return {
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.output,
        "total_tokens": counts.total,
        "prompt_tokens_details": {"cached_tokens": counts.cached},
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning},
    }
