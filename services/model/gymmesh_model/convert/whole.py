"""Requests without unpaired surrogates, which no endpoint can read.

They have no UTF-8 form: a strict parser refuses the request, and no tokenizer takes such a text. A
policy could write one, or have a tool repeat one, and end its rollout without a verdict. What is
recorded keeps them; what is sent has U+FFFD, the replacement character, in their place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gymmesh_model.errors import unreadable
from gymmesh_responses import CodecError, dumps_clean


def whole_text(text: str) -> str:
    """The text with U+FFFD for each unpaired surrogate; two halves that meet are a character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def write_whole(body: Any, write: Callable[[Any], bytes] = dumps_clean) -> bytes:
    """The body of a request as JSON that every endpoint can read; `body` is not changed.

    `write` is the codec's `dumps_clean` or `dumps`. Raises MeshError FIELD_INVALID for what JSON
    cannot hold: parameters may each be as deep as the codec reads, and a body is deeper.
    """
    try:
        written = write(body)
        # Characters are written as they are, but for those that UTF-8 does not have.
        if written.find(b"\\ud") < 0:
            return written
        return write(whole(body))
    except CodecError as error:
        raise unreadable(error) from None


def whole(value: Any) -> Any:
    """A JSON value with `whole_text` for every text and key; the same where that is the same."""
    if isinstance(value, str):
        return value if value.isascii() else whole_text(value)
    if isinstance(value, dict):
        return {whole(key): whole(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [whole(member) for member in value]
    return value
