"""Rows as they stand in their files. Nothing of the product is used."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any, Final

import zstandard

from tests.chaos.journal_file import Place

_ALWAYS: Final = frozenset(("task_id", "repeat_index", "rollout_id", "attempt"))


def key_of(row: dict[str, Any]) -> bytes:
    """A rollout's key in the journal."""
    return hashlib.blake2b(row["rollout_id"].encode(), digest_size=16).digest()


def read_lines(path: Path) -> list[bytes]:
    """The lines of a file of rows, blank ones left out; the last may lack its newline."""
    if not path.exists():
        return []
    data = path.read_bytes()
    if path.suffix == ".zst":
        data = _unpacked(data)
    return [line for line in data.split(b"\n") if line.strip()]


def as_row(line: bytes) -> dict[str, Any] | None:
    """A line's row; None when it is none."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and row.keys() >= _ALWAYS else None


def row_at(path: Path, place: Place) -> bytes:
    """The line that a journal says is there, with its newline."""
    with path.open("rb") as file:
        file.seek(place.offset)
        data = file.read(place.extent)
    if path.suffix == ".zst":
        data = _unpacked(data)
    return data[place.inner : place.inner + place.length]


def _unpacked(data: bytes) -> bytes:
    """What all whole frames hold."""
    reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
    pieces = []
    with contextlib.suppress(zstandard.ZstdError):
        while piece := reader.read(1 << 16):
            pieces.append(piece)
    return b"".join(pieces)


def answer_of(row: dict[str, Any]) -> str:
    """The text of the last message; empty without one."""
    for item in reversed((row.get("response") or {}).get("output") or []):
        if item.get("type") == "message":
            return "".join(part.get("text", "") for part in item["content"])
    return ""
