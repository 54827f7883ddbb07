"""Reads the content of a chat answer, a text or a list of parts, in whole and in streamed answers.

The known parts are OpenAI's `text` and `refusal`, Mistral's `thinking` (a list of texts) and
`reference`, and Anthropic's `thinking` (a text), which proxies pass on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from gymmesh_model.errors import AnswerInvalid

ContentPiece = tuple[Literal["text", "reasoning", "refusal", "note"], Any]
"""The kind of a piece, and its text. For a note: the whole part instead of a text."""


def content_pieces(content: object) -> Iterator[ContentPiece]:
    """The pieces of the content, in order. Raises AnswerInvalid if it is neither text nor parts."""
    if isinstance(content, str):
        yield "text", content
    elif isinstance(content, list):
        for part in content:
            yield _piece(part)
    elif isinstance(content, Mapping):
        yield _piece(content)
    elif content is not None:
        raise AnswerInvalid("the response's content is neither text nor a list of parts")


def _piece(part: object) -> ContentPiece:
    if isinstance(part, str):
        return "text", part
    kind = part.get("type") if isinstance(part, Mapping) else None
    if isinstance(part, Mapping):
        if kind in ("text", "output_text") and isinstance(part.get("text"), str):
            return "text", part["text"]
        if kind == "refusal" and isinstance(part.get("refusal"), str):
            return "refusal", part["refusal"]
        if kind in ("thinking", "reasoning"):
            return "reasoning", _thinking(part, str(kind))
        if kind == "reference":
            return "note", part
    raise AnswerInvalid(
        f"the response's content has a part of an unknown type: {str(kind)[:100]!r}"
    )


def _thinking(part: Mapping[str, Any], kind: str) -> str:
    """The text of a reasoning part. It is under the part's own key or under `text`, and can be a
    list of texts.
    """
    said = part.get(kind, part.get("text"))
    if isinstance(said, list):
        said = "".join(_text(one) for one in said)
    if not isinstance(said, str):
        raise AnswerInvalid("the response's reasoning is neither text nor a list of texts")
    return said


def _text(part: object) -> str:
    text = part.get("text") if isinstance(part, Mapping) else part
    # What Mistral cites inside of its thinking has no text of its own.
    return text if isinstance(text, str) else ""
