"""Writes answers of the Anthropic Messages API, whole and as events. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gymmesh_agent.gateway.dialects.output import (
    OutputCall,
    OutputItem,
    OutputMessage,
    OutputReasoning,
    counts_of,
    finish_in,
    has_calls,
    model_of,
    output_of,
    response_id,
)
from gymmesh_agent.gateway.dialects.sse import named_event, pieces
from gymmesh_agent.gateway.request import GatewayAnswer, GatewayRequest, Json
from gymmesh_responses import Finish

_SAID: Final = {"output_text": "text", "refusal": "refusal"}


def anthropic_document(request: GatewayRequest, answer: GatewayAnswer) -> Json:
    """The whole answer.

    A tool's input is always an object, whatever the model wrote: see `OutputCall.arguments_object`.
    """
    items = output_of(answer)
    document = _head(request, answer)
    document["content"] = [
        block for item in items for block in _blocks(item, request.reply.reasoning)
    ]
    document["stop_reason"] = _stop_reason(answer, items)
    document["usage"]["output_tokens"] = counts_of(answer).output
    return document


def anthropic_events(request: GatewayRequest, answer: GatewayAnswer) -> Iterator[bytes]:
    """The events of the same answer.

    Arguments that are an object are streamed exactly as the model wrote them.
    """
    items = output_of(answer)
    yield _event("message_start", message=_head(request, answer))
    index = 0
    for item in items:
        for block in _blocks(item, request.reply.reasoning):
            yield from _block_events(index, block, item)
            index += 1
    delta = {"stop_reason": _stop_reason(answer, items), "stop_sequence": None}
    usage = {"output_tokens": counts_of(answer).output}
    yield _event("message_delta", delta=delta, usage=usage)
    yield _event("message_stop")


def _event(kind: str, **data: Any) -> bytes:
    return named_event(kind, {"type": kind, **data})


def _block_events(index: int, block: Json, item: OutputItem) -> Iterator[bytes]:
    kind = block["type"]
    begun, deltas = dict(block), list[Json]()
    if kind == "text":
        begun["text"] = ""
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
    elif kind == "thinking":
        begun["thinking"] = begun["signature"] = ""
        texts = pieces(block["thinking"])
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in texts]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    elif isinstance(item, OutputCall):
        begun["input"] = {}
        texts = pieces(item.arguments_text)
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in texts]
    yield _event("content_block_start", index=index, content_block=begun)
    for delta in deltas:
        yield _event("content_block_delta", index=index, delta=delta)
    yield _event("content_block_stop", index=index)


def _head(request: GatewayRequest, answer: GatewayAnswer) -> Json:
    counts = counts_of(answer)
    return {
        "id": response_id(answer, "msg"),
        "type": "message",
        "role": "assistant",
        "model": model_of(request, answer),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            # Cached tokens are counted apart here.
            "input_tokens": counts.prompt - counts.cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": counts.cached,
            "output_tokens": 0,
        },
    }


def _blocks(item: OutputItem, shows_reasoning: bool) -> list[Json]:
    """The blocks of an item; the API accepts no empty text."""
    if isinstance(item, OutputMessage):
        texts = [part[_SAID[part["type"]]] for part in item.parts if part["type"] in _SAID]
        return [{"type": "text", "text": text} for text in texts if text]
    if isinstance(item, OutputCall):
        return [
            {
                "type": "tool_use",
                "id": item.minted.id("toolu"),
                "name": item.name,
                "input": item.arguments_object,
            }
        ]
    if not isinstance(item, OutputReasoning) or not shows_reasoning:
        return []
    if item.text:
        signature = item.minted.id("sig")
        return [{"type": "thinking", "thinking": item.text, "signature": signature}]
    return [{"type": "redacted_thinking", "data": item.minted.id("sig")}]


def _stop_reason(answer: GatewayAnswer, items: list[OutputItem]) -> str:
    finish = finish_in(answer)
    if finish is Finish.FILTERED:
        return "refusal"
    if finish is Finish.LENGTH:
        return "max_tokens"
    return "tool_use" if has_calls(items) else "end_turn"
