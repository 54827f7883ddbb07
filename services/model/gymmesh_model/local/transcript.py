"""Rewrites a tool-using chat as plain text that a model without tool calling can follow.

The forms are the ones the constraint asks the model for, so that the history reads as
its own earlier steps: `{"tool": …, "arguments": …}` and `{"answer": …}`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

ChatMessage = dict[str, Any]


def compact(value: object) -> str:
    """JSON without spaces, in the separators that the constraint makes the model use."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def text_of(content: object) -> str | None:
    """The text of a chat message's content: a string, or a list of text parts.

    None when the content holds anything but text (an image, say).
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return None
    parts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
    texts = [part for part in parts if isinstance(part, str)]
    return "".join(texts) if len(texts) == len(parts) else None


def rewrite(messages: Iterable[Mapping[str, Any]], *, as_steps: bool) -> list[ChatMessage]:
    """Chat Completions messages without `tool_calls` and without the role `tool`.

    `as_steps`: assistant answers are wrapped as `{"answer": …}` too. Results of calls that
    follow each other become one user message, in their order. Nothing received is changed.
    """
    out: list[ChatMessage] = []
    names: dict[str, str] = {}
    for is_result, run in groupby(messages, lambda message: message.get("role") == "tool"):
        if is_result:
            lines = [_result_line(message, names) for message in run]
            out.append({"role": "user", "content": "\n".join(lines)})
        else:
            out += [_rewrite_one(message, names, as_steps) for message in run]
    return out


def describe(tools: Sequence[Mapping[str, Any]], *, may_answer: bool) -> str:
    """The system prompt's paragraph that says which tools exist and how to use them."""
    lines = ["Tools:", *map(_tool_line, tools)] if tools else []
    call = '{"tool":NAME,"arguments":ARGUMENTS} to use a tool'
    answer = '{"answer":ANSWER} to give the final answer'
    forms = ([call] if tools else []) + ([answer] if may_answer else [])
    lines.append(f"Reply with one JSON object only: {', or '.join(forms)}.")
    return "\n".join(lines)


def with_system(messages: list[ChatMessage], paragraph: str) -> list[ChatMessage]:
    """The messages with a paragraph at the end of the first system message, or before all."""
    if messages and messages[0].get("role") == "system":
        text = text_of(messages[0].get("content"))
        if text is not None:
            joined = f"{text}\n\n{paragraph}" if text else paragraph
            return [{**messages[0], "content": joined}, *messages[1:]]
    return [{"role": "system", "content": paragraph}, *messages]


def _rewrite_one(message: Mapping[str, Any], names: dict[str, str], as_steps: bool) -> ChatMessage:
    role = message.get("role")
    text = text_of(message.get("content"))
    content: Any = message.get("content") if text is None else text
    if role != "assistant":
        # Chat templates of small models know no `developer`.
        return {"role": "system" if role == "developer" else role, "content": content}
    calls = message.get("tool_calls") or []
    if not calls:
        step = compact({"answer": text}) if as_steps and text is not None else content
        return {"role": "assistant", "content": step}
    lines = [text] if text else []
    lines += [_call_line(call, names) for call in calls]
    return {"role": "assistant", "content": "\n".join(lines)}


def _call_line(call: Mapping[str, Any], names: dict[str, str]) -> str:
    function = call.get("function")
    function = function if isinstance(function, Mapping) else {}
    name = str(function.get("name", ""))
    names[str(call.get("id"))] = name
    arguments = function.get("arguments", "{}")
    # What is no JSON is shown to the model as the string that it wrote.
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        arguments = json.loads(arguments)
    return compact({"tool": name, "arguments": arguments})


def _result_line(message: Mapping[str, Any], names: Mapping[str, str]) -> str:
    text = text_of(message.get("content"))
    shown = compact(message.get("content")) if text is None else text
    name = names.get(str(message.get("tool_call_id")), "tool")
    return f"The result of {name} is {shown}"


def _tool_line(tool: Mapping[str, Any]) -> str:
    parameters = tool.get("parameters")
    properties = parameters.get("properties", {}) if isinstance(parameters, Mapping) else {}
    description = str(tool.get("description") or "").strip()
    head = f"- {tool.get('name')}: {description}" if description else f"- {tool.get('name')}:"
    return f"{head} Arguments: {compact(properties)}"
