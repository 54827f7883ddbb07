"""The model's answers on the wire, in the three APIs over which gateways call models. Pure.

Each has a document, which a whole answer is, and the events of its stream. Chat Completions has
tokens as vLLM gives them: `prompt_token_ids` and `token_ids` where `return_token_ids` asks for
them, and log probabilities where `logprobs` does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gymmesh_conformance.gateway.adapter import SampledTokens, WrittenAnswer, WrittenCall

Json = dict[str, Any]


def chat_message(answer: WrittenAnswer, number: int) -> Json:
    """The message of Chat Completions; `number`: of the call, for the ids of its tool calls."""
    message: Json = {"role": "assistant", "content": answer.text or None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [
            {
                "id": id_,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for id_, call in _numbered(answer, number)
        ]
    return message


def chat_document(asked: Mapping[str, Any], message: Json, sampled: SampledTokens) -> Json:
    """A whole answer of Chat Completions."""
    finish = "tool_calls" if "tool_calls" in message else "stop"
    choice: Json = {"index": 0, "message": message, "finish_reason": finish}
    if asked.get("logprobs"):
        pairs = zip(sampled.output, sampled.logprobs, strict=True)
        choice["logprobs"] = {"content": [_entry(token, logprob) for token, logprob in pairs]}
    counts = len(sampled.prompt), len(sampled.output)
    document: Json = {
        "id": "chatcmpl-script",
        "object": "chat.completion",
        "created": 0,
        "model": asked.get("model", "m"),
        "choices": [choice],
        "usage": {
            "prompt_tokens": counts[0],
            "completion_tokens": counts[1],
            "total_tokens": sum(counts),
        },
    }
    if asked.get("return_token_ids"):
        document["prompt_token_ids"] = sampled.prompt
        choice["token_ids"] = sampled.output
    return document


def chat_stream(document: Json) -> list[str]:
    """The same answer as a stream: its beginning, all of it at once, its end, its usage."""
    head = {key: document[key] for key in ("id", "created", "model")}
    head["object"] = "chat.completion.chunk"
    (choice,) = document["choices"]
    delta = dict(choice["message"])
    if "tool_calls" in delta:
        delta["tool_calls"] = [
            {"index": place, **call} for place, call in enumerate(delta["tool_calls"])
        ]
    told = {key: choice[key] for key in ("logprobs", "token_ids") if key in choice}
    first = {**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
    if "prompt_token_ids" in document:
        first["prompt_token_ids"] = document["prompt_token_ids"]
    whole = {**head, "choices": [{"index": 0, "delta": delta, **told}]}
    end = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    usage = {**head, "choices": [], "usage": document["usage"]}
    chunks = [first, whole, {**head, "choices": [end]}, usage]
    return [*(_data(one) for one in chunks), "data: [DONE]\n\n"]


def responses_document(asked: Mapping[str, Any], answer: WrittenAnswer, number: int) -> Json:
    """A whole answer of Responses."""
    output: list[Json] = []
    if answer.reasoning:
        content = [{"type": "reasoning_text", "text": answer.reasoning}]
        thought = {"type": "reasoning", "id": f"rs_{number}", "summary": [], "content": content}
        output.append(thought)
    if answer.text or not answer.calls:
        part = {"type": "output_text", "text": answer.text, "annotations": []}
        said = {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": [part]}
        output.append({**said, "status": "completed"})
    output += [
        {
            "type": "function_call",
            "id": f"fc_{id_}",
            "call_id": id_,
            "name": call.name,
            "arguments": call.arguments,
            "status": "completed",
        }
        for id_, call in _numbered(answer, number)
    ]
    details = {"input_tokens_details": {"cached_tokens": 0}}
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "model": asked.get("model", "m"),
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 1,
            "output_tokens": 1,
            "total_tokens": 2,
            "output_tokens_details": {"reasoning_tokens": 0},
            **details,
        },
    }


def responses_stream(document: Json) -> list[str]:
    """The same answer as a stream that has each item at once."""
    begun = {**document, "status": "in_progress", "output": [], "usage": None}
    events: list[Json] = [{"type": "response.created", "response": begun}]
    for place, item in enumerate(document["output"]):
        events.append({"type": "response.output_item.added", "output_index": place, "item": item})
        events.append({"type": "response.output_item.done", "output_index": place, "item": item})
    events.append({"type": "response.completed", "response": document})
    return [
        f"event: {event['type']}\n" + _data({**event, "sequence_number": number})
        for number, event in enumerate(events)
    ]


def messages_document(asked: Mapping[str, Any], answer: WrittenAnswer, number: int) -> Json:
    """A whole answer of Anthropic's Messages."""
    content: list[Json] = []
    if answer.reasoning:
        signature = f"signature-{number}"
        thought = {"type": "thinking", "thinking": answer.reasoning, "signature": signature}
        content.append(thought)
    if answer.text or not answer.calls:
        content.append({"type": "text", "text": answer.text})
    content += [
        {"type": "tool_use", "id": id_, "name": call.name, "input": json.loads(call.arguments)}
        for id_, call in _numbered(answer, number)
    ]
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": asked.get("model", "m"),
        "content": content,
        "stop_reason": "tool_use" if answer.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def messages_stream(document: Json) -> list[str]:
    """The same answer as a stream that has each block at once."""
    begun = {**document, "content": [], "stop_reason": None}
    events: list[Json] = [{"type": "message_start", "message": begun}]
    for place, block in enumerate(document["content"]):
        empty, deltas = _block(block)
        start = {"type": "content_block_start", "index": place, "content_block": empty}
        events.append(start)
        events += [
            {"type": "content_block_delta", "index": place, "delta": delta} for delta in deltas
        ]
        events.append({"type": "content_block_stop", "index": place})
    delta = {"stop_reason": document["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 1}})
    events.append({"type": "message_stop"})
    return [f"event: {event['type']}\n" + _data(event) for event in events]


def _block(block: Json) -> tuple[Json, Sequence[Json]]:
    """A block as it begins, and what then comes to it."""
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    if block["type"] == "thinking":
        return {**block, "thinking": "", "signature": ""}, [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    written = json.dumps(block["input"])
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": written}]


def _numbered(answer: WrittenAnswer, number: int) -> list[tuple[str, WrittenCall]]:
    """The tool calls with an id each, which is unique in the session."""
    return [(f"call_{number}_{place}", call) for place, call in enumerate(answer.calls)]


def _entry(token: int, logprob: float) -> Json:
    return {"token": f"token_id:{token}", "logprob": logprob, "bytes": None, "top_logprobs": []}


def _data(event: Json) -> str:
    return f"data: {json.dumps(event)}\n\n"
