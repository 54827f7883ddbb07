"""Reasoning that a model writes into its text, between `<think>` and `</think>`.

- A block at the beginning, after optional white space, is reasoning. Its text is kept exactly, so
  that the text can be written back as the model wrote it. A block that is never closed is reasoning
  to the end.
- If the chat template has already written `<think>`, the model does not write it. Then all text up
  to the first `</think>` is reasoning.
- A complete block later in the text is also reasoning; blocks are joined by a blank line. A later
  `<think>` that is never closed is text, and so is a `</think>` after the first block, because an
  answer may mention these tags.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

OPEN: Final = "<think>"
CLOSE: Final = "</think>"
_BETWEEN: Final = "\n\n"
ThinkingPiece = tuple[Literal["reasoning", "text"], str]


class ThinkSplitter:
    """Splits text that arrives in pieces. Returns each part as soon as the part's kind is known.

    Text before a `</think>` without a `<think>` is returned as text. Only the whole text shows that
    it is reasoning, see `split_thinking`.
    """

    def __init__(self) -> None:
        self._state: Literal["start", "reasoning", "text", "block"] = "start"
        self._held = ""
        self._reasoned = False

    def feed(self, piece: str) -> list[ThinkingPiece]:
        """The parts whose kind is known now."""
        self._held += piece
        found: list[ThinkingPiece] = []
        while (step := self._step()) is not None:
            found += step
        return found

    def end(self) -> list[ThinkingPiece]:
        """The text that was held back because it could have been the beginning of a tag."""
        held, self._held = self._held, ""
        return self._said("reasoning" if self._state == "reasoning" else "text", held)

    def _step(self) -> list[ThinkingPiece] | None:
        """Removes one part from the held text and returns it; None if no further part's kind is
        known.
        """
        if self._state == "start":
            begun = self._held.lstrip()
            if len(begun) < len(OPEN) and OPEN.startswith(begun):
                return None
            self._state = "text"
            if begun.startswith(OPEN):
                self._state, self._held = "reasoning", begun.removeprefix(OPEN)
            return []
        if self._state == "block":
            if CLOSE not in self._held:
                return None  # kept whole: unclosed, it is text
            self._state, self._held = "reasoning", self._held.removeprefix(OPEN)
            return []
        tag = CLOSE if self._state == "reasoning" else OPEN
        before, found, rest = self._held.partition(tag)
        if found:
            said = self._said(self._state, before)
            if self._state == "reasoning":
                self._reasoned = True
                self._state, self._held = "text", rest
            else:
                self._state, self._held = "block", OPEN + rest
            return said
        keep = _overlap(before, tag)
        if len(before) == keep:
            return None
        self._held = before[len(before) - keep :]
        return self._said(self._state, before[: len(before) - keep])

    def _said(self, kind: Literal["reasoning", "text"], text: str) -> list[ThinkingPiece]:
        if not text:
            return []
        if kind == "reasoning" and self._reasoned:
            self._reasoned = False
            text = _BETWEEN + text
        return [(kind, text)]


def split_thinking(text: str) -> tuple[str, str]:
    """The reasoning in a whole text, and the rest of the text."""
    begins = text.lstrip().startswith(OPEN)
    opened, closed = text.find(OPEN), text.find(CLOSE)
    if not begins and closed >= 0 and (opened < 0 or closed < opened):
        text = OPEN + text
    splitter = ThinkSplitter()
    said: dict[str, str] = {"reasoning": "", "text": ""}
    for kind, piece in splitter.feed(text) + splitter.end():
        said[kind] += piece
    return said["reasoning"], said["text"]


def lift_thinking(answer: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a chat answer, with the message's reasoning under its own key. The argument is not
    changed.

    A message stays as it is if it already has reasoning under its own key, or if its content has no
    text.
    """
    choices = answer.get("choices")
    if not isinstance(choices, list):
        return dict(answer)
    return {**answer, "choices": [_lifted(choice) for choice in choices]}


def lower_thinking(body: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a chat request in which assistant messages have their reasoning in tags, before
    their text.

    body: the request with the reasoning under `reasoning_content`; not changed.
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
    if not isinstance(message, Mapping):
        return choice
    if message.get("reasoning_content") or message.get("reasoning"):
        return choice
    content = message.get("content")
    if isinstance(content, list) and all(_is_plain(part) for part in content):
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str):
        return choice
    reasoning, text = split_thinking(content)
    lifted = {**message, "content": text}
    if reasoning:
        lifted["reasoning_content"] = reasoning
    return {**choice, "message": lifted}


def _is_plain(part: Any) -> bool:
    return (
        isinstance(part, Mapping)
        and part.get("type") == "text"
        and isinstance(part.get("text"), str)
    )


def _overlap(text: str, tag: str) -> int:
    """How many characters at the end of the text may be the beginning of the tag."""
    for size in range(min(len(tag) - 1, len(text)), 0, -1):
        if tag.startswith(text[len(text) - size :]):
            return size
    return 0
