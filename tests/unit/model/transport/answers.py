"""Answers as bytes, good and hostile, and what a client must make of them: see answers.json.

Any client that calls endpoints is tried with them. A row's `sent` is a list of texts, each byte a
Latin-1 character, or of pairs of a text and how often it is sent; `outcome` is

- `answer`, with `status`, `body` and `keeps` (whether the connection may be used again);
- `refused`: not HTTP/1.1, or such as two readers could take in two ways;
- `too large` for at most 1,000 bytes of body and 2,000 of head.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

_FILE = Path(__file__).with_name("answers.json")


class Row(msgspec.Struct, frozen=True):
    """One answer and its outcome."""

    name: str
    outcome: Literal["answer", "refused", "too large"]
    sent: bytes
    status: int = 0
    body: str = ""
    keeps: bool = False


def answers() -> list[Row]:
    """All rows of the data file."""
    rows: list[dict[str, Any]] = msgspec.json.decode(_FILE.read_bytes())
    return [msgspec.convert({**row, "sent": _bytes(row["sent"])}, Row) for row in rows]


def _bytes(parts: list[Any]) -> bytes:
    texts = (part if isinstance(part, str) else part[0] * part[1] for part in parts)
    return "".join(texts).encode("latin-1")
