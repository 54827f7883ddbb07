"""Writes answers of the Responses API, whole and as events. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gymmesh_agent.gateway.dialects.output import (
    OutputCall,
    OutputItem,
    OutputMessage,
    OutputOpaque,
    OutputReasoning,
    counts_of,
    finish_in,
    model_of,
    output_of,
    response_id,
)
from gymmesh_agent.gateway.dialects.sse import named_event, pieces
from gymmesh_agent.gateway.request import GatewayAnswer, GatewayRequest, Json
from gymmesh_responses import Finish

# Parameters that a response repeats, and what they are where the request has none.
_ECHO: Final[Json] = {
    "max_output_tokens": None,
    "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None},
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "top_logprobs": None,
    "top_p": None,
    "truncation": "disabled",
}


def response_document(request: GatewayRequest, answer: GatewayAnswer) -> Json:
    """The whole answer."""
    finish = finish_in(answer)
    document = _head(request, answer)
    document["status"] = "completed" if finish is Finish.DONE else "incomplete"
    if finish is not Finish.DONE:
        filtered = finish is Finish.FILTERED
        reason = "content_filter" if filtered else "max_output_tokens"
        document["incomplete_details"] = {"reason": reason}
    document["output"] = [_item(request, item) for item in output_of(answer)]
    document["usage"] = _usage(answer)
    return document


def response_events(request: GatewayRequest, answer: GatewayAnswer) -> Iterator[bytes]:
    """The events of the same answer."""
    events = _Events()
    begun = {**_head(request, answer), "status": "in_progress", "output": []}
    yield events.event("response.created", response=begun)
    yield events.event("response.in_progress", response=begun)
    for index, item in enumerate(output_of(answer)):
        whole = _item(request, item)
        place = {"output_index": index}
        yield events.event("response.output_item.added", **place, item=_begun(whole))
        place["item_id"] = whole.get("id", "")
        if isinstance(item, OutputMessage):
            for position, part in enumerate(whole["content"]):
                yield from events.part({**place, "content_index": position}, part)
        elif isinstance(item, OutputCall):
            yield from events.arguments(place, whole)
        elif isinstance(item, OutputReasoning):
            yield from events.reasoning(place, item)
        yield events.event("response.output_item.done", output_index=index, item=whole)
    document = response_document(request, answer)
    yield events.event(f"response.{document['status']}", response=document)


class _Events:
    """Numbers the events of one response."""

    def __init__(self) -> None:
        self._next = 0

    def event(self, kind: str, **data: Any) -> bytes:
        number, self._next = self._next, self._next + 1
        return named_event(kind, {"type": kind, "sequence_number": number, **data})

    def part(self, place: Json, part: Json) -> Iterator[bytes]:
        """The events of one part of a message."""
        kind = part["type"]
        if kind == "output_text":
            begun: Json = {"type": kind, "text": "", "annotations": [], "logprobs": []}
            yield self.event("response.content_part.added", **place, part=begun)
            for piece in pieces(part["text"]):
                yield self.event("response.output_text.delta", **place, delta=piece, logprobs=[])
            notes = part.get("logprobs") or []
            done = {**place, "text": part["text"], "logprobs": notes}
            yield self.event("response.output_text.done", **done)
        elif kind == "refusal":
            begun = {"type": kind, "refusal": ""}
            yield self.event("response.content_part.added", **place, part=begun)
            for piece in pieces(part["refusal"]):
                yield self.event("response.refusal.delta", **place, delta=piece)
            yield self.event("response.refusal.done", **place, refusal=part["refusal"])
        else:
            yield self.event("response.content_part.added", **place, part=part)
        yield self.event("response.content_part.done", **place, part=part)

    def arguments(self, place: Json, call: Json) -> Iterator[bytes]:
        """The events of a function call's arguments."""
        for piece in pieces(call["arguments"]):
            yield self.event("response.function_call_arguments.delta", **place, delta=piece)
        done = {**place, "arguments": call["arguments"], "name": call["name"]}
        yield self.event("response.function_call_arguments.done", **done)

    def reasoning(self, place: Json, item: OutputReasoning) -> Iterator[bytes]:
        """The events of a reasoning item's texts."""
        for position, text in enumerate(item.summary):
            where = {**place, "summary_index": position}
            kind = "response.reasoning_summary"
            begun = {"type": "summary_text", "text": ""}
            yield self.event(f"{kind}_part.added", **where, part=begun)
            for piece in pieces(text):
                yield self.event(f"{kind}_text.delta", **where, delta=piece)
            yield self.event(f"{kind}_text.done", **where, text=text)
            yield self.event(f"{kind}_part.done", **where, part={**begun, "text": text})
        for position, text in enumerate(item.content):
            where = {**place, "content_index": position}
            for piece in pieces(text):
                yield self.event("response.reasoning_text.delta", **where, delta=piece)
            yield self.event("response.reasoning_text.done", **where, text=text)


def _head(request: GatewayRequest, answer: GatewayAnswer) -> Json:
    """The response's fields that are known before its first item."""
    return {
        "id": response_id(answer, "resp"),
        "object": "response",
        "created_at": answer.created,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": request.instructions or None,
        "max_tool_calls": None,
        "metadata": {},
        "model": model_of(request, answer),
        "output": [],
        "previous_response_id": None,
        "store": False,
        "tools": list(request.tools),
        "usage": None,
        "user": None,
        **{key: request.params.get(key, default) for key, default in _ECHO.items()},
    }


def _item(request: GatewayRequest, item: OutputItem) -> Json:
    minted = item.minted
    if isinstance(item, OutputMessage):
        return {
            "type": "message",
            "id": minted.id("msg"),
            "status": item.status,
            "role": "assistant",
            "content": item.parts,
        }
    if isinstance(item, OutputCall):
        return {"type": "function_call", "id": minted.id("fc"), **_call(request, item)}
    if isinstance(item, OutputReasoning):
        made: Json = {
            "type": "reasoning",
            "id": minted.id("rs"),
            "summary": [{"type": "summary_text", "text": text} for text in item.summary],
            # Some programs send back this alone.
            "encrypted_content": minted.id("rs"),
        }
        if item.content:
            made["content"] = [{"type": "reasoning_text", "text": text} for text in item.content]
        return made
    return _opaque(item)


def _call(request: GatewayRequest, item: OutputCall) -> Json:
    call: Json = {
        "call_id": item.minted.id("call"),
        "name": item.name,
        "arguments": item.arguments,
        "status": item.status,
    }
    if item.name in request.tool_names:
        call["namespace"], call["name"] = request.tool_names[item.name]
    return call


def _opaque(item: OutputOpaque) -> Json:
    """The item unchanged, except that its ids are minted."""
    made = {**item.document}
    for key, prefix in (("id", "it"), ("call_id", "call")):
        if isinstance(made.get(key), str):
            made[key] = item.minted.id(prefix)
    return made


def _begun(item: Json) -> Json:
    """An item in its first event: without the parts that later events add."""
    kind = item.get("type")
    if kind == "message":
        return {**item, "status": "in_progress", "content": []}
    if kind == "function_call":
        return {**item, "status": "in_progress", "arguments": ""}
    if kind == "reasoning":
        return {**item, "summary": [], **({"content": []} if "content" in item else {})}
    return item


def _usage(answer: GatewayAnswer) -> Json:
    counts = counts_of(answer)
    return {
        "input_tokens": counts.prompt,
        "input_tokens_details": {"cached_tokens": counts.cached},
        "output_tokens": counts.output,
        "output_tokens_details": {"reasoning_tokens": counts.reasoning},
        "total_tokens": counts.total,
    }
