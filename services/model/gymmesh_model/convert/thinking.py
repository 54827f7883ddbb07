"""Reasoning that a model writes into its text, between `<think>` and `</think>`.

Only a block at the very beginning counts, blanks before it aside. Everything between the tags
is the reasoning, everything after them the text, both to the letter: written back in the
same form they are what the model wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

OPEN: Final = "<think>"
CLOSE: Final = "</think>"
ThinkingPiece = tuple[Literal["reasoning", "text"], str]


class ThinkSplitter:
    """Splits text that arrives in pieces, handing each part on as soon as its kind is known."""

    def __init__(self) -> None:
        self._state: Literal["start", "reasoning", "text"] = "start"
        self._held = ""

    def feed(self, piece: str) -> list[ThinkingPiece]:
        text, self._held = self._held + piece, ""
        found: list[ThinkingPiece] = []
        if self._state == "start":
            begun = text.lstrip()
            if len(begun) < len(OPEN) and OPEN.startswith(begun):
                self._held = text
                return []
            self._state = "reasoning" if begun.startswith(OPEN) else "text"
            text = begun.removeprefix(OPEN) if self._state == "reasoning" else text
        if self._state == "reasoning":
            reasoning, closed, rest = text.partition(CLOSE)
            if not closed:
                keep = _overlap(reasoning)
                self._held = reasoning[len(reasoning) - keep :]
                return _piece("reasoning", reasoning[: len(reasoning) - keep])
            found += _piece("reasoning", reasoning)
            self._state, text = "text", rest
        return found + _piece("text", text)

    def end(self) -> list[ThinkingPiece]:
        """What was held back, in case it was the beginning of a tag."""
        held, self._held = self._held, ""
        return _piece("reasoning" if self._state == "reasoning" else "text", held)


def lift_thinking(answer: Mapping[str, Any]) -> dict[str, Any]:
    """A chat answer whose message has its reasoning apart. The given one is not changed.

    A message that has reasoning apart already, or whose content is no text, stays as it is.
    """
    choices = answer.get("choices")
    if not isinstance(choices, list):
        return dict(answer)
    return {**answer, "choices": [_lifted(choice) for choice in choices]}


def lower_thinking(body: Mapping[str, Any]) -> dict[str, Any]:
    """A chat request whose assistant messages have their reasoning before their text, in tags.

    body: with the reasoning under `reasoning_content`; not changed.
    """
    return {**body, "messages": [_lowered(message) for message in body["messages"]]}


def _lowered(message: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(message)
    reasoning = made.pop("reasoning_content", None)
    if reasoning is None:
        return made
    block, content = f"{OPEN}{reasoning}{CLOSE}", made.get("content")
    if isinstance(content, list):
        made["content"] = [{"type": "text", "text": block}, *content]
    else:
        made["content"] = block + (content or "")
    return made


def _lifted(choice: Any) -> Any:
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(message, Mapping) or not isinstance(message.get("content"), str):
        return choice
    if message.get("reasoning_content") or message.get("reasoning"):
        return choice
    splitter = ThinkSplitter()
    pieces = splitter.feed(message["content"]) + splitter.end()
    parts = {kind: "".join(text for one, text in pieces if one == kind) for kind, _ in pieces}
    lifted = {**message, "content": parts.get("text", "")}
    if "reasoning" in parts:
        lifted["reasoning_content"] = parts["reasoning"]
    return {**choice, "message": lifted}


def _piece(kind: Literal["reasoning", "text"], text: str) -> list[ThinkingPiece]:
    return [(kind, text)] if text else []


def _overlap(text: str) -> int:
    """How many characters at the end may be the beginning of the closing tag."""
    for size in range(min(len(CLOSE) - 1, len(text)), 0, -1):
        if CLOSE.startswith(text[len(text) - size :]):
            return size
    return 0
