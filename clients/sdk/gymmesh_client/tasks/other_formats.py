"""Files that hold tasks in another form than JSON lines: refused with the command that helps."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, Final

from gymmesh_client.problems import UserError

_HEAD_BYTES: Final = 4096
# By how a file begins. `import` reads the first kind as it is.
_MAGIC: Final = (
    (b"PAR1", "a Parquet file", ""),
    (b"ARROW1", "an Arrow file", "write the rows to a Parquet file first"),
    (b"\x1f\x8b", "compressed with gzip", "decompress the file first, with gunzip"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "decompress the file first, with zstd -d"),
    (b"PK\x03\x04", "a ZIP archive", "unpack the archive first"),
)


def refuse_other_formats(file: BinaryIO, path: Path) -> None:
    """Raise UserError for a file that is not JSON lines; else leave `file` at its beginning."""
    if not file.seekable():  # a pipe is read once
        return
    head = file.read(_HEAD_BYTES)
    file.seek(0)
    for magic, kind, instead in _MAGIC:
        if head.startswith(magic):
            raise UserError(f"{path} is {kind}, not JSON lines; {instead or _import(path)}")
    if _is_document(head, file):
        raise UserError(f"{path} is one JSON document, not JSON lines; {_import(path)}")


def _is_document(head: bytes, file: BinaryIO) -> bool:
    """Whether a file is one JSON value: a list, or an object written over several lines."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    first, _, rest = text.partition(b"\n")
    if first.strip() == b"{" and rest:
        return True
    if not first.startswith(b"["):
        return False
    file.seek(0, os.SEEK_END)
    file.seek(max(0, file.tell() - _HEAD_BYTES))
    tail = file.read().rstrip()
    file.seek(0)
    return tail.endswith(b"]")


def _import(path: Path) -> str:
    return f"make tasks with: gym-cli import {path} --format hf --output tasks.jsonl"
