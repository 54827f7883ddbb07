"""A checksum after the index, which detects a changed byte.

SQLite has no checksums: if a digit of a reward changes in its file, SQLite reads the changed digit.
It ignores bytes after its last page, so the checksum is there: 4 bytes of magic, and the CRC-32 of
all bytes before them, little-endian.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import Final

_SEAL: Final = struct.Struct("<4sI")
_MAGIC: Final = b"GMXC"
_CHUNK: Final = 1 << 20


def seal(path: Path) -> None:
    """Put the checksum behind a database that nobody writes any more. Raises OSError."""
    crc = _crc(path, path.stat().st_size)
    with path.open("ab") as file:
        file.write(_SEAL.pack(_MAGIC, crc))


def unseal(path: Path) -> None:
    """Take the checksum off. Raises OSError."""
    os.truncate(path, max(0, path.stat().st_size - _SEAL.size))


def is_sealed(path: Path) -> bool:
    """Whether a checksum is behind the file, right or not. Raises OSError."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _SEAL.size))
        return file.read().startswith(_MAGIC)


def sealed_size(path: Path) -> int:
    """Bytes of the database before its checksum. Raises ValueError where the file is not what was
    sealed, and OSError.
    """
    size = path.stat().st_size - _SEAL.size
    if size < 0:
        raise ValueError("cut short")
    with path.open("rb") as file:
        file.seek(size)
        found = file.read()
    if found != _SEAL.pack(_MAGIC, _crc(path, size)):
        raise ValueError("its checksum does not match")
    return size


def _crc(path: Path, size: int) -> int:
    crc = 0
    with path.open("rb", buffering=0) as file:
        while size > 0 and (data := file.read(min(_CHUNK, size))):
            crc, size = zlib.crc32(data, crc), size - len(data)
    return crc
