"""Responses parameters as the body of a request for Gemini's generateContent.

Each parameter is handled in one of these ways:

- translated: input, instructions, tools, tool_choice, max_output_tokens, temperature, top_p, top_k,
  stop, seed, presence_penalty, frequency_penalty, reasoning, text.format;
- not sent, and echoed in the response: metadata, store, max_tool_calls;
- dropped because it is the default: null anywhere, background and stream false, truncation
  "disabled", parallel_tool_calls true;
- rejected with PARAMETER_UNSUPPORTED: everything else that Responses defines and Gemini lacks;
- sent unchanged: parameters that Responses does not define (safetySettings, cachedContent …). A
  `generationConfig` is merged with the translated parameters, which take precedence.

A part's `thoughtSignature` is kept in the item for the part: as `thought_signature` of a function
call or a text, and as `encrypted_content` of a reasoning item. It is sent back unchanged in the
same place. Reasoning without a signature is not sent: the API ignores it.

Format: Google's API reference of `models.generateContent`, v1beta.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from gymmesh_model.convert import (
    LACKING,
    OFF,
    asked,
    function_tools,
    sent_arguments,
    sent_name,
    text_of_part,
)
from gymmesh_model.errors import unsupported
from gymmesh_responses import data_of_url, loads
from gymmesh_runtime.errors import field_invalid

Json = dict[str, Any]

SIGNATURE: Final = "thought_signature"
_OFF: Final[Mapping[str, object]] = {**OFF, "parallel_tool_calls": True}
_LACKING: Final = LACKING.union(
    (
        *("include", "top_logprobs", "user", "safety_identifier", "prompt_cache_key"),
        *("prompt_cache_retention", "service_tier"),
    )
)
_CONFIG: Final[Mapping[str, str]] = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "max_output_tokens": "maxOutputTokens",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}
_TEXT_PARTS: Final = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_MODES: Final = {"auto": "AUTO", "required": "ANY", "none": "NONE"}


class GeminiOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `options` of a `gemini` model.

    api_version: the version in the URL's path.
    """

    api_version: str = "v1beta"


def to_generate(params: Mapping[str, Any], seed: int | None = None) -> Json:
    """The body that asks for what `params` ask for; `params` are not changed.

    seed: used when the parameters have none of their own. Raises MeshError PARAMETER_UNSUPPORTED,
    naming the place, or FIELD_INVALID.
    """
    body = _conversation(params)
    config: Json = {} if seed is None else {"seed": seed}
    for key, value in asked(params, "Gemini", _LACKING, _OFF):
        if key == "model":
            continue  # the path names it
        if key in _CONFIG:
            config[_CONFIG[key]] = value
        elif key in ("stop", "stop_sequences"):
            config["stopSequences"] = [value] if isinstance(value, str) else value
        elif key in _WRITERS:
            _WRITERS[key](value, body, config)
        else:
            body.setdefault(key, value)
    given = body.get("generationConfig")
    if config or given:
        body["generationConfig"] = {**(given if isinstance(given, dict) else {}), **config}
    if "tools" not in body:
        choice = body.pop("toolConfig", None)
        if choice and choice["functionCallingConfig"]["mode"] == "ANY":
            raise field_invalid(
                "params.tool_choice", "requires a tool call, but no tools are given"
            )
    return body


def _tools(value: object, body: Json, config: Json) -> None:
    declared = [_tool(tool, place) for tool, place in function_tools(value)]
    if declared:
        body["tools"] = [{"functionDeclarations": declared}]


def _tool(tool: Mapping[str, Any], place: str) -> Json:
    made: Json = {"name": tool["name"]}
    for key, member in tool.items():
        if key in ("type", "name") or member is None or (key == "strict" and member is False):
            continue
        if key == "strict":
            raise unsupported(f"{place}.strict", "Gemini has no such parameter")
        made["parametersJsonSchema" if key == "parameters" else key] = member
    return made


def _tool_choice(value: object, body: Json, config: Json) -> None:
    if isinstance(value, str) and value in _MODES:
        choice: Json = {"mode": _MODES[value]}
    elif isinstance(value, Mapping) and value.get("type") == "function":
        choice = {"mode": "ANY", "allowedFunctionNames": [value.get("name")]}
    else:
        raise unsupported(
            "tool_choice", "only 'auto', 'required', 'none' and a named function are supported"
        )
    body["toolConfig"] = {"functionCallingConfig": choice}


def _reasoning(value: object, body: Json, config: Json) -> None:
    if not isinstance(value, Mapping):
        raise field_invalid("params.reasoning", "must be an object")
    thinking: Json = {}
    for key, member in value.items():
        if member is None:
            continue
        if key == "effort":
            thinking |= {"thinkingBudget": 0} if member == "none" else {"thinkingLevel": member}
        elif key == "summary":
            thinking["includeThoughts"] = True
        else:
            raise unsupported(f"reasoning.{key}", "Gemini has no such parameter")
    if thinking:
        config["thinkingConfig"] = thinking


def _text(value: object, body: Json, config: Json) -> None:
    if not isinstance(value, Mapping):
        raise field_invalid("params.text", "must be an object")
    for key, member in value.items():
        if member is None:
            continue
        if key != "format":
            raise unsupported(f"text.{key}", "Gemini has no such parameter")
        kind = member.get("type") if isinstance(member, Mapping) else None
        if kind in ("json_object", "json_schema"):
            config["responseMimeType"] = "application/json"
        if kind == "json_schema":
            config["responseJsonSchema"] = member.get("schema")
        elif kind not in ("text", "json_object"):
            raise unsupported("text.format", f"Gemini has no text format {kind!r}")


_WRITERS: Final[Mapping[str, Callable[[object, Json, Json], None]]] = {
    "tools": _tools,
    "tool_choice": _tool_choice,
    "reasoning": _reasoning,
    "text": _text,
}


def _conversation(params: Mapping[str, Any]) -> Json:
    """`systemInstruction` and `contents` of the body."""
    instructions, value = params.get("instructions"), params.get("input")
    writer = _ContentsWriter(params.get("tools"))
    if isinstance(instructions, str):
        writer.system.append({"text": instructions})
    elif instructions is not None:
        raise field_invalid("params.instructions", "must be text")
    if isinstance(value, str):
        writer.say("user", [{"text": value}])
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if not isinstance(item, Mapping):
                raise field_invalid(f"params.input[{index}]", "must be an object")
            writer.add(item, f"input[{index}]")
    else:
        raise field_invalid("params.input", "must be text or a list of items")
    body: Json = {"contents": writer.contents}
    if writer.system:
        body["systemInstruction"] = {"parts": writer.system}
    return body


class _ContentsWriter:
    """Puts items into contents that alternate between user and model."""

    def __init__(self, tools: object) -> None:
        self.system: list[Json] = []
        self.contents: list[Json] = []
        self._tools = tools
        self._names: dict[str, str] = {}  # of tools, by the id of their call

    def say(self, role: str, parts: list[Json]) -> None:
        """Add parts of a role, to its content where it spoke last."""
        if not parts:
            return
        if self.contents and self.contents[-1]["role"] == role:
            self.contents[-1]["parts"] += parts
        else:
            self.contents.append({"role": role, "parts": parts})

    def add(self, item: Mapping[str, Any], place: str) -> None:
        """Add one item of the input."""
        kind = item.get("type", "message")
        if kind == "message":
            self._message(item, place)
        elif kind == "reasoning":
            self._reasoning(item, place)
        elif kind == "function_call":
            self._call(item, place)
        elif kind == "function_call_output":
            self._output(item, place)
        else:
            raise unsupported(f"{place}.type", f"Gemini's API has no item of type '{kind}'")

    def _message(self, item: Mapping[str, Any], place: str) -> None:
        role, parts = item.get("role"), _parts(item.get("content"), f"{place}.content")
        if role in ("system", "developer"):
            if any("text" not in part for part in parts):
                raise unsupported(f"{place}.content", "a system message may only have text")
            if self.contents:
                self.say("user", parts)
            else:
                self.system += parts
        elif role in ("user", "assistant"):
            self.say("user" if role == "user" else "model", parts)
        else:
            raise unsupported(f"{place}.role", f"Gemini's API has no role {role!r}")

    def _reasoning(self, item: Mapping[str, Any], place: str) -> None:
        signature = item.get("encrypted_content")
        if not isinstance(signature, str):
            return
        text = "".join(part["text"] for part in _parts(item.get("content"), f"{place}.content"))
        self.say("model", [{"text": text, "thought": True, "thoughtSignature": signature}])

    def _call(self, item: Mapping[str, Any], place: str) -> None:
        call_id, name, written = (item.get(key) for key in ("call_id", "name", "arguments"))
        if not isinstance(call_id, str) or not isinstance(name, str):
            raise field_invalid(
                f"params.{place}", "needs the keys 'call_id' and 'name' with strings"
            )
        arguments = sent_arguments(written if isinstance(written, str) else "")
        name = self._names[call_id] = sent_name(name, self._tools)
        call = {"id": call_id, "name": name, "args": loads(arguments.encode())}
        self.say("model", [_signed({"functionCall": call}, item)])

    def _output(self, item: Mapping[str, Any], place: str) -> None:
        call_id = item.get("call_id")
        if not isinstance(call_id, str) or call_id not in self._names:
            raise field_invalid(
                f"params.{place}.call_id", "is not the 'call_id' of an earlier function call"
            )
        parts = _parts(item.get("output"), f"{place}.output")
        text = "\n".join(part["text"] for part in parts if "text" in part)
        answer: Json = {"id": call_id, "name": self._names[call_id], "response": {"output": text}}
        media = [part for part in parts if "text" not in part]
        if media:
            answer["parts"] = media
        self.say("user", [{"functionResponse": answer}])


def _signed(part: Json, given: Mapping[str, Any]) -> Json:
    signature = given.get(SIGNATURE)
    return {**part, "thoughtSignature": signature} if isinstance(signature, str) else part


def _parts(content: object, place: str) -> list[Json]:
    """Gemini's parts of text, or of Responses' parts."""
    if content is None:
        return []
    if isinstance(content, str):
        return [{"text": content}]
    if not isinstance(content, list):
        raise field_invalid(f"params.{place}", "must be text or a list of parts")
    return [_part(part, f"{place}[{index}]") for index, part in enumerate(content)]


def _part(part: object, place: str) -> Json:
    if not isinstance(part, Mapping):
        raise field_invalid(f"params.{place}", "must be an object")
    kind = part.get("type")
    if kind in _TEXT_PARTS:
        return _signed({"text": text_of_part(part, "text", place)}, part)
    if kind == "refusal":
        return {"text": text_of_part(part, "refusal", place)}
    if kind in ("input_image", "input_file"):
        key = "image_url" if kind == "input_image" else "file_data"
        found = data_of_url(str(part.get(key) or ""))
        if found is None:
            raise unsupported(f"{place}.{key}", "only a data URL in base64 is supported")
        return {"inlineData": {"mimeType": found[0], "data": found[1]}}
    raise unsupported(f"{place}.type", f"Gemini's API has no content part of type '{kind}'")
