"""Tool calls in the text of an answer, as chat templates have models write them. Pure.

A server such as vLLM reads tool calls itself. If a program samples tokens with an engine of its
own, this module reads them. A call that cannot be read stays text, so nothing that the model wrote
is lost.

    hermes    <tool_call>{"name": …, "arguments": {…}}</tool_call>   Qwen, Hermes, SmolLM3
    llama     {"name": …, "parameters": {…}} as the whole answer     Llama 3.1 and later
    mistral   [TOOL_CALLS][{"name": …, "arguments": {…}}, …]         Mistral

Each format is that of the models' own chat templates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gymmesh_responses import CodecError, dumps, loads

_HERMES: Final = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_MISTRAL: Final = "[TOOL_CALLS]"


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A tool call. `arguments`: JSON text, as it is sent back to the template. `id`: where the
    model writes one, as the template expects it back.
    """

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """An answer's text without its tool calls, these in their order, and its reasoning."""

    text: str
    calls: tuple[ParsedCall, ...] = ()
    reasoning: str = ""


ToolParser = Callable[[str], ParsedAnswer]
"""Parses an answer's text."""


def hermes(text: str) -> ParsedAnswer:
    """Calls between tags; one that is no call stays in the text, tags and all."""
    calls: list[ParsedCall] = []

    def take(match: re.Match[str]) -> str:
        call = _call(_json(match[1]), "arguments")
        if call is None:
            return match[0]
        calls.append(call)
        return ""

    rest = _HERMES.sub(take, text)
    return ParsedAnswer(rest.strip() if calls else text, tuple(calls))


def llama(text: str) -> ParsedAnswer:
    """A call that is the whole answer."""
    whole = text.strip().removeprefix("<|python_tag|>")
    call = _call(_json(whole), "parameters") if whole.startswith("{") else None
    return ParsedAnswer(text) if call is None else ParsedAnswer("", (call,))


def mistral(text: str) -> ParsedAnswer:
    """A list of calls after a marker."""
    before, marker, after = text.partition(_MISTRAL)
    found = _json(after) if marker else None
    calls = [_call(one, "arguments") for one in found] if isinstance(found, list) else []
    good = [one for one in calls if one is not None]
    if not good or len(good) < len(calls):
        return ParsedAnswer(text)
    return ParsedAnswer(before.strip(), tuple(good))


TOOL_PARSERS: Final[Mapping[str, ToolParser]] = {
    "hermes": hermes,
    "llama": llama,
    "mistral": mistral,
}
"""The parsers by name."""


def _json(text: str) -> Any:
    try:
        return loads(text)
    except CodecError:
        return None


def _call(value: Any, arguments_key: str) -> ParsedCall | None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get(arguments_key, {})
    if not isinstance(arguments, dict):
        return None
    return ParsedCall(value["name"], dumps(arguments).decode("utf-8", "surrogatepass"))
