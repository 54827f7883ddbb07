"""Writes answers of Gemini, whole and as events. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from gymmesh_agent.gateway.dialects.gemini.signatures import signature_of
from gymmesh_agent.gateway.dialects.output import (
    OutputCall,
    OutputItem,
    OutputMessage,
    OutputReasoning,
    counts_of,
    finish_in,
    model_of,
    output_of,
    response_id,
)
from gymmesh_agent.gateway.dialects.sse import MAX_DELTA, pieces, plain_event
from gymmesh_agent.gateway.request import GatewayAnswer, GatewayRequest, Json
from gymmesh_responses import Finish

_FINISHES: Final = {
    Finish.DONE: "STOP",
    Finish.LENGTH: "MAX_TOKENS",
    Finish.FILTERED: "SAFETY",
}


def gemini_document(request: GatewayRequest, answer: GatewayAnswer) -> Json:
    """The whole answer.

    A call's args are always an object, whatever the model wrote: see `OutputCall.arguments_object`.
    """
    parts = _answer_parts(request, answer)
    return _document(request, answer, parts, _FINISHES[finish_in(answer)])


def gemini_events(request: GatewayRequest, answer: GatewayAnswer) -> Iterator[bytes]:
    """The events of the same answer; the last event has the reason why the answer ended."""
    parts = [piece for part in _answer_parts(request, answer) for piece in _split(part)]
    for part in parts[:-1]:
        yield plain_event(_document(request, answer, [part], None))
    yield plain_event(_document(request, answer, parts[-1:], _FINISHES[finish_in(answer)]))


def _document(
    request: GatewayRequest, answer: GatewayAnswer, parts: list[Json], finish: str | None
) -> Json:
    candidate: Json = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {
        "candidates": [candidate],
        "usageMetadata": _usage(answer),
        "modelVersion": model_of(request, answer),
        "createTime": datetime.fromtimestamp(answer.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "responseId": response_id(answer, "resp"),
    }


def _answer_parts(request: GatewayRequest, answer: GatewayAnswer) -> list[Json]:
    """At least one part, because programs treat an answer without parts as a failure of the
    endpoint.
    """
    shows = request.reply.reasoning
    parts = [part for item in output_of(answer) for part in _parts(item, shows)]
    return parts or [{"text": ""}]


def _parts(item: OutputItem, shows_reasoning: bool) -> list[Json]:
    if isinstance(item, OutputMessage):
        texts = (item.text, item.refusal)
        return [{"text": text} for text in texts if text]
    if isinstance(item, OutputCall):
        call = {
            "id": item.minted.id("call"),
            "name": item.name,
            "args": item.arguments_object,
        }
        return [{"functionCall": call, "thoughtSignature": signature_of(item.minted)}]
    if isinstance(item, OutputReasoning) and shows_reasoning and item.text:
        thought = {"text": item.text, "thought": True}
        return [{**thought, "thoughtSignature": signature_of(item.minted)}]
    return []


def _split(part: Json) -> Iterator[Json]:
    """The part with its text in pieces; a signature stays with the last piece."""
    text = part.get("text", "")
    if len(text) <= MAX_DELTA:
        yield part
        return
    texts = list(pieces(text))
    unsigned = {key: value for key, value in part.items() if key != "thoughtSignature"}
    for piece in texts[:-1]:
        yield {**unsigned, "text": piece}
    yield {**part, "text": texts[-1]}


def _usage(answer: GatewayAnswer) -> Json:
    counts = counts_of(answer)
    usage = {
        "promptTokenCount": counts.prompt,
        "candidatesTokenCount": counts.output - counts.reasoning,
        "totalTokenCount": counts.total,
    }
    if counts.reasoning:
        usage["thoughtsTokenCount"] = counts.reasoning
    if counts.cached:
        usage["cachedContentTokenCount"] = counts.cached
    return usage
