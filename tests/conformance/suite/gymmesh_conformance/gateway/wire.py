"""Requests in four dialects as programs write them, and answers as programs read them. Pure.

Written from the APIs' documentation alone, so that a gateway is not tested with its own code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gymmesh_conformance.gateway.sessions import Entry, RecordedProgram, Step

Json = dict[str, Any]


@dataclass(frozen=True)
class ReadCall:
    """A tool call as the program got it; `extra`: what else belongs to it and goes back."""

    id: str
    name: str
    arguments: str
    extra: Json


@dataclass(frozen=True)
class ReadAnswer:
    """An answer as the program got it; `reasoning`: parts to send back as they are."""

    text: str = ""
    calls: tuple[ReadCall, ...] = ()
    reasoning: tuple[Json, ...] = ()
    text_extra: Json | None = None


@dataclass(frozen=True)
class Piece:
    """A part of a history, ready to be written: a message, an answer or a tool's output."""

    role: str
    text: str = ""
    answer: ReadAnswer | None = None
    call: ReadCall | None = None


def pieces_of(
    entries: Sequence[Entry],
    histories: Mapping[str, Sequence[Piece]],
    answers: Mapping[str, ReadAnswer],
) -> list[Piece]:
    """A step's history, with what earlier steps sent and got."""
    found: list[Piece] = []
    for entry in entries:
        for role in ("user", "system", "assistant"):
            text = getattr(entry, role)
            if text is not None:
                found.append(Piece(role, text))
        if entry.after is not None:
            found += [*histories[entry.after], Piece("answer", answer=answers[entry.after])]
        elif entry.echo is not None:
            found.append(Piece("answer", answer=_changed(answers[entry.echo], entry)))
        elif entry.tool is not None:
            call = answers[entry.tool].calls[entry.call]
            found.append(Piece("tool", entry.output, call=call))
    return found


def _changed(answer: ReadAnswer, entry: Entry) -> ReadAnswer:
    if entry.text is not None:
        answer = replace(answer, text=entry.text)
    if entry.without_call is not None:
        kept = [call for place, call in enumerate(answer.calls) if place != entry.without_call]
        answer = replace(answer, calls=tuple(kept))
    return answer


def path_of(program: RecordedProgram) -> str:
    """Where a program sends its requests."""
    if program.dialect == "gemini":
        how = "streamGenerateContent?alt=sse" if program.stream else "generateContent"
        return f"/v1beta/models/m:{how}"
    if program.dialect == "messages":
        return "/v1/messages?beta=true"
    return "/v1/responses" if program.dialect == "responses" else "/v1/chat/completions"


def key_header(dialect: str, key: str) -> dict[str, str]:
    """The header in which a program shows its API key."""
    if dialect == "messages":
        return {"x-api-key": key, "anthropic-version": "2023-06-01"}
    return {"x-goog-api-key": key} if dialect == "gemini" else {"authorization": f"Bearer {key}"}


def body_of(program: RecordedProgram, step: Step, pieces: Sequence[Piece]) -> Json:
    """The body of a step's request."""
    system = program.system if step.system is None else step.system
    tools = program.tools if step.tools is None else step.tools
    body = _WRITERS[program.dialect](program, system, tools, pieces)
    return {**body, **program.params, **step.params}


def read_answer(dialect: str, content_type: str, body: str) -> ReadAnswer:
    """An answer, whole or streamed. Raises ValueError for one that cannot be read."""
    if "event-stream" not in content_type:
        return _READERS[dialect](json.loads(body))
    events = [
        json.loads(line[5:])
        for line in body.splitlines()
        if line.startswith("data:") and line[5:].strip() not in ("", "[DONE]")
    ]
    return _READERS[dialect](_JOINERS[dialect](events))


# ---- writing ------------------------------------------------------------------------------------


def _spelled(program: RecordedProgram, arguments: str) -> str:
    how = program.habits.arguments
    if how == "verbatim":
        return arguments
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        return arguments
    if how == "spaced":
        return json.dumps(value, sort_keys=True, indent=1)
    return json.dumps(_as_javascript(value), separators=(",", ":"), ensure_ascii=False)


def _as_javascript(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_javascript(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_as_javascript(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _chat(
    program: RecordedProgram, system: str, tools: Sequence[str], pieces: Sequence[Piece]
) -> Json:
    messages: list[Json] = [{"role": "system", "content": system}] if system else []
    for piece in pieces:
        if piece.answer is not None:
            message: Json = {"role": "assistant", "content": piece.answer.text or None}
            if piece.answer.calls:
                message["tool_calls"] = [
                    {
                        **call.extra,
                        "id": call.id,
                        "type": "function",
                        "function": {
                            "name": call.name,
                            "arguments": _spelled(program, call.arguments),
                        },
                    }
                    for call in piece.answer.calls
                ]
            if piece.answer.reasoning and program.habits.reasoning == "kept":
                message |= piece.answer.reasoning[0]
            messages.append(message)
        elif piece.call is not None:
            messages.append({"role": "tool", "tool_call_id": piece.call.id, "content": piece.text})
        else:
            blocks = program.habits.blocks and piece.role == "user"
            content: Any = [{"type": "text", "text": piece.text}] if blocks else piece.text
            messages.append({"role": piece.role, "content": content})
    body: Json = {"model": "m", "messages": messages, "stream": program.stream}
    if tools:
        body["tools"] = [
            {"type": "function", "function": {"name": name, "parameters": _SCHEMA}}
            for name in tools
        ]
    return body


def _responses(
    program: RecordedProgram, system: str, tools: Sequence[str], pieces: Sequence[Piece]
) -> Json:
    items: list[Json] = []
    for piece in pieces:
        if piece.answer is not None:
            if program.habits.reasoning == "kept":
                items += piece.answer.reasoning
            if piece.answer.text or not piece.answer.calls:
                part: Json = {"type": "output_text", "text": piece.answer.text}
                if program.habits.annotations == "kept":
                    part["annotations"] = []
                extra = piece.answer.text_extra or {}
                items.append({**extra, "type": "message", "role": "assistant", "content": [part]})
            items += [
                {
                    **call.extra,
                    "type": "function_call",
                    "call_id": call.id,
                    "name": call.name,
                    "arguments": _spelled(program, call.arguments),
                }
                for call in piece.answer.calls
            ]
        elif piece.call is not None:
            output = {"type": "function_call_output", "call_id": piece.call.id}
            items.append({**output, "output": piece.text})
        else:
            kind = "output_text" if piece.role == "assistant" else "input_text"
            role = "developer" if piece.role == "system" else piece.role
            content = [{"type": kind, "text": piece.text}]
            items.append({"type": "message", "role": role, "content": content})
    body: Json = {"model": "m", "input": items, "stream": program.stream, "store": False}
    if system:
        body["instructions"] = system
    if tools:
        body["tools"] = [
            {"type": "function", "name": name, "parameters": _SCHEMA, "strict": False}
            for name in tools
        ]
    return body


def _messages(
    program: RecordedProgram, system: str, tools: Sequence[str], pieces: Sequence[Piece]
) -> Json:
    messages: list[Json] = []
    for place, piece in enumerate(pieces):
        last = place == len(pieces) - 1
        if piece.answer is not None:
            blocks: list[Json] = []
            if program.habits.reasoning == "kept":
                blocks += piece.answer.reasoning
            if piece.answer.text:
                blocks.append({"type": "text", "text": piece.answer.text})
            for call in piece.answer.calls:
                spelled = json.loads(_spelled(program, call.arguments))
                named = {"type": "tool_use", "id": call.id, "name": call.name, "input": spelled}
                blocks.append(named)
            messages.append({"role": "assistant", "content": blocks})
        elif piece.call is not None:
            block: Json = {"type": "tool_result", "tool_use_id": piece.call.id}
            block["content"] = piece.text
            messages.append({"role": "user", "content": [block | (_CACHED if last else {})]})
        elif last and piece.role == "user":
            # The last one is a list with a mark; earlier ones are plain texts.
            content = [{"type": "text", "text": piece.text, **_CACHED}]
            messages.append({"role": "user", "content": content})
        else:
            messages.append({"role": piece.role, "content": piece.text})
    body: Json = {"model": "m", "messages": messages, "stream": program.stream}
    if system:
        body["system"] = [{"type": "text", "text": system, **_CACHED}]
    if tools:
        body["tools"] = [{"name": name, "input_schema": _SCHEMA} for name in tools]
    return {"max_tokens": 32000, **body}


def _gemini(
    program: RecordedProgram, system: str, tools: Sequence[str], pieces: Sequence[Piece]
) -> Json:
    contents: list[Json] = []
    for piece in pieces:
        if piece.answer is not None:
            parts: list[Json] = []
            if program.habits.reasoning == "kept":
                parts += piece.answer.reasoning
            if piece.answer.text:
                parts.append({"text": piece.answer.text})
            for call in piece.answer.calls:
                spelled = json.loads(_spelled(program, call.arguments))
                function = {"id": call.id, "name": call.name, "args": spelled}
                parts.append({**call.extra, "functionCall": function})
            contents.append({"role": "model", "parts": parts})
        elif piece.call is not None:
            response = {"id": piece.call.id, "name": piece.call.name}
            part = {"functionResponse": {**response, "response": {"output": piece.text}}}
            contents.append({"role": "user", "parts": [part]})
        else:
            role = "model" if piece.role == "assistant" else "user"
            contents.append({"role": role, "parts": [{"text": piece.text}]})
    body: Json = {"contents": contents}
    if system:
        body["systemInstruction"] = {"role": "user", "parts": [{"text": system}]}
    if tools:
        functions = [{"name": name, "parametersJsonSchema": _SCHEMA} for name in tools]
        body["tools"] = [{"functionDeclarations": functions}]
    return body


# ---- reading ------------------------------------------------------------------------------------


def _read_chat(document: Json) -> ReadAnswer:
    message = document["choices"][0]["message"]
    calls = tuple(
        ReadCall(one["id"], one["function"]["name"], one["function"]["arguments"], {})
        for one in message.get("tool_calls") or ()
    )
    kept = {key: message[key] for key in ("reasoning_content",) if message.get(key)}
    return ReadAnswer(message.get("content") or "", calls, (kept,) if kept else ())


def _read_responses(document: Json) -> ReadAnswer:
    text, calls, reasoning, extra = "", [], [], None
    for item in document["output"]:
        if item["type"] == "message":
            text += "".join(part.get("text", "") for part in item["content"])
            extra = {key: item[key] for key in ("id", "status") if key in item}
        elif item["type"] == "function_call":
            own = {key: item[key] for key in ("id", "status") if key in item}
            calls.append(ReadCall(item["call_id"], item["name"], item["arguments"], own))
        elif item["type"] == "reasoning":
            reasoning.append(item)
    return ReadAnswer(text, tuple(calls), tuple(reasoning), extra)


def _read_messages(document: Json) -> ReadAnswer:
    text, calls, reasoning = "", [], []
    for block in document["content"]:
        if block["type"] == "text":
            text += block["text"]
        elif block["type"] == "tool_use":
            arguments = json.dumps(block["input"])
            calls.append(ReadCall(block["id"], block["name"], arguments, {}))
        else:
            reasoning.append(block)
    return ReadAnswer(text, tuple(calls), tuple(reasoning))


def _read_gemini(document: Json) -> ReadAnswer:
    text, calls, reasoning = "", [], []
    for part in document["candidates"][0]["content"].get("parts", ()):
        if part.get("thought"):
            reasoning.append(part)
        elif "functionCall" in part:
            call = part["functionCall"]
            own = {key: part[key] for key in ("thoughtSignature",) if key in part}
            id_ = call.get("id", "")
            calls.append(ReadCall(id_, call["name"], json.dumps(call.get("args", {})), own))
        else:
            text += part.get("text", "")
    return ReadAnswer(text, tuple(calls), tuple(reasoning))


def _join_chat(events: Sequence[Json]) -> Json:
    message: Json = {"content": "", "reasoning_content": "", "tool_calls": []}
    for event in events:
        for choice in event.get("choices", ()):
            delta = choice.get("delta", {})
            for key in ("content", "reasoning_content"):
                message[key] += delta.get(key) or ""
            for piece in delta.get("tool_calls") or ():
                if piece["index"] >= len(message["tool_calls"]):
                    message["tool_calls"].append(
                        {"id": piece["id"], "function": {"name": "", "arguments": ""}}
                    )
                function = message["tool_calls"][piece["index"]]["function"]
                for key in ("name", "arguments"):
                    function[key] += piece.get("function", {}).get(key) or ""
    return {"choices": [{"message": message}]}


def _join_responses(events: Sequence[Json]) -> Json:
    (completed,) = [event for event in events if event["type"] == "response.completed"]
    response: Json = completed["response"]
    return response


def _join_messages(events: Sequence[Json]) -> Json:
    blocks: list[Json] = []
    inputs: dict[int, str] = {}
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append(dict(event["content_block"]))
        elif event["type"] == "content_block_delta":
            block, delta = blocks[event["index"]], event["delta"]
            if delta["type"] == "text_delta":
                block["text"] += delta["text"]
            elif delta["type"] == "thinking_delta":
                block["thinking"] = block.get("thinking", "") + delta["thinking"]
            elif delta["type"] == "signature_delta":
                block["signature"] = delta["signature"]
            elif delta["type"] == "input_json_delta":
                inputs[event["index"]] = inputs.get(event["index"], "") + delta["partial_json"]
    for index, text in inputs.items():
        blocks[index]["input"] = json.loads(text or "{}")
    return {"content": blocks}


def _join_gemini(events: Sequence[Json]) -> Json:
    parts = [
        part
        for event in events
        for candidate in event.get("candidates", ())
        for part in candidate.get("content", {}).get("parts", ())
    ]
    return {"candidates": [{"content": {"parts": parts}}]}


_SCHEMA: Final[Json] = {"type": "object", "properties": {"command": {"type": "string"}}}
_CACHED: Final[Json] = {"cache_control": {"type": "ephemeral"}}
_Writer = Callable[[RecordedProgram, str, Sequence[str], Sequence[Piece]], Json]
_WRITERS: Final[Mapping[str, _Writer]] = {
    "chat": _chat,
    "responses": _responses,
    "messages": _messages,
    "gemini": _gemini,
}
_READERS: Final[Mapping[str, Callable[[Json], ReadAnswer]]] = {
    "chat": _read_chat,
    "responses": _read_responses,
    "messages": _read_messages,
    "gemini": _read_gemini,
}
_JOINERS: Final[Mapping[str, Callable[[Sequence[Json]], Json]]] = {
    "chat": _join_chat,
    "responses": _join_responses,
    "messages": _join_messages,
    "gemini": _join_gemini,
}
