"""What programs send to the model, and how they read its answers: Chat Completions and Messages.

A program has a system prompt, tools, and a history that grows by an answer and a tool's output with
each call. It sends all of it each time, as programs do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Final

import orjson

_PROSE: Final = "Read what is there before you change it, and run the tests when you have. "
SYSTEM: Final = _PROSE * 54  # 4 KB
OUTPUT: Final = "src/parser.py:118: the name is looked up once for each of its uses\n" * 15  # 1 KB
TEXT: Final = "The lookup in parser.py is done once for each use; let me look at its callers. " * 4
ARGUMENTS: Final = '{"command": "grep -rn lookup src | head -n 40", "timeout_s": 20}'
_TOOLS: Final = ("shell", "read", "write", "edit", "search", "list", "fetch", "plan")

Json = dict[str, Any]


def _schema(name: str) -> Json:
    about = f"Use it for {name}, with what the task says; its output is cut after 10,000 lines. "
    keys = {key: {"type": "string", "description": about} for key in ("command", "path", "text")}
    return {"type": "object", "properties": keys, "required": ["command"]}


class Speech(ABC):
    """One dialect.

    Attributes:
        path: where it is asked, behind the root of the address.
    """

    path: str

    @abstractmethod
    def headers(self, key: str) -> dict[str, str]:
        """Of a request."""

    @abstractmethod
    def body(self, history: list[Json], *, stream: bool) -> bytes:
        """A request with the whole history."""

    @abstractmethod
    def begin(self, text: str) -> list[Json]:
        """The history of a new conversation."""

    @abstractmethod
    def whole(self, data: bytes) -> Json:
        """The message of a whole answer, as a program keeps it."""

    @abstractmethod
    def streamed(self, data: bytes) -> Json:
        """The message of a streamed answer."""

    @abstractmethod
    def output(self, message: Json, text: str) -> Json:
        """What a program adds after a message: the output of the tool that it called."""


class Chat(Speech):
    """Chat Completions."""

    path = "/v1/chat/completions"
    _tools: Final = [
        {"type": "function", "function": {"name": name, "parameters": _schema(name)}}
        for name in _TOOLS
    ]

    def headers(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def body(self, history: list[Json], *, stream: bool) -> bytes:
        asked = {"model": "scripted", "messages": history, "tools": self._tools, "stream": stream}
        return orjson.dumps(asked | ({"stream_options": {"include_usage": True}} if stream else {}))

    def begin(self, text: str) -> list[Json]:
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]

    def whole(self, data: bytes) -> Json:
        message: Json = orjson.loads(data)["choices"][0]["message"]
        return message

    def streamed(self, data: bytes) -> Json:
        text, calls = "", list[Json]()
        for event in events_of(data):
            for choice in event["choices"]:
                delta = choice["delta"]
                text += delta.get("content") or ""
                for part in delta.get("tool_calls") or ():
                    if part["index"] == len(calls):
                        calls.append({"id": part["id"], "type": "function", "function": {}})
                    function = calls[part["index"]]["function"]
                    for key, value in part["function"].items():
                        function[key] = function.get(key, "") + (value or "")
        return {"role": "assistant", "content": text, "tool_calls": calls}

    def output(self, message: Json, text: str) -> Json:
        return {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": text}


class Messages(Speech):
    """Anthropic Messages."""

    path = "/v1/messages"
    _tools: Final = [{"name": name, "input_schema": _schema(name)} for name in _TOOLS]

    def headers(self, key: str) -> dict[str, str]:
        shown = {"x-api-key": key, "anthropic-version": "2023-06-01"}
        return {**shown, "Content-Type": "application/json"}

    def body(self, history: list[Json], *, stream: bool) -> bytes:
        asked = {"model": "scripted", "max_tokens": 8192, "system": SYSTEM, "tools": self._tools}
        return orjson.dumps({**asked, "messages": history, "stream": stream})

    def begin(self, text: str) -> list[Json]:
        return [{"role": "user", "content": text}]

    def whole(self, data: bytes) -> Json:
        return {"role": "assistant", "content": orjson.loads(data)["content"]}

    def streamed(self, data: bytes) -> Json:
        blocks: list[Json] = []
        written: list[str] = []
        for event in events_of(data):
            if event["type"] == "content_block_start":
                blocks.append(event["content_block"])
                written.append("")
            elif event["type"] == "content_block_delta":
                delta = event["delta"]
                written[event["index"]] += delta.get("text") or delta.get("partial_json") or ""
        for block, text in zip(blocks, written, strict=True):
            if block["type"] == "text":
                block["text"] = text
            else:
                block["input"] = orjson.loads(text)
        return {"role": "assistant", "content": blocks}

    def output(self, message: Json, text: str) -> Json:
        used = next(block["id"] for block in message["content"] if block["type"] == "tool_use")
        result = {"type": "tool_result", "tool_use_id": used, "content": text}
        return {"role": "user", "content": [result]}


def events_of(data: bytes) -> Iterator[Json]:
    """The documents of a stream of server-sent events."""
    for line in data.split(b"\n"):
        if line.startswith(b"data: {"):
            yield orjson.loads(line[6:])


SPEECHES: Final[dict[str, Speech]] = {"chat": Chat(), "messages": Messages()}
