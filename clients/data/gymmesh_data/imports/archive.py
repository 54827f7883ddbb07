"""Members of a zip archive, those compressed by zstd included, which zipfile reads from Python 3.14
on only.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import zstandard

from gymmesh_client.problems import UserError, unreadable

_ZSTD: Final = 93
# PKZIP's APPNOTE 4.3.7; the two lengths are at its end.
_LOCAL_HEADER: Final = struct.Struct("<4s22xHH")
# An archive is another's file: what a member may grow to in memory.
_LARGEST: Final = 1 << 30


def members(path: Path, prefix: str) -> Iterator[tuple[str, bytes]]:
    """The members whose names begin with `prefix`, in their order: name and content. Raises
    UserError where the archive or a member cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            for info in archive.infolist():
                if info.filename.startswith(prefix) and not info.is_dir():
                    yield info.filename, _content(archive, info, file, path)
    except OSError as error:
        raise unreadable(path, error) from None
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, zstandard.ZstdError) as error:
        raise UserError(f"{path}: not a readable zip archive: {error}") from None


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo, file: BinaryIO, path: Path) -> bytes:
    if info.file_size > _LARGEST:
        raise UserError(f"{path}: {info.filename}: exceeds {_LARGEST} bytes")
    if info.compress_type != _ZSTD:
        return archive.read(info)
    if info.flag_bits & 1:
        raise UserError(f"{path}: {info.filename}: is encrypted")
    file.seek(info.header_offset)
    head = file.read(_LOCAL_HEADER.size)
    if len(head) < _LOCAL_HEADER.size or not head.startswith(b"PK\x03\x04"):
        raise zipfile.BadZipFile(f"{info.filename} is damaged")
    _, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(head)
    file.seek(name_bytes + extra_bytes, io.SEEK_CUR)
    data = io.BytesIO(file.read(info.compress_size))
    # Inspect writes large members as several frames.
    reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
    content = reader.read(info.file_size + 1)
    if len(content) != info.file_size or zlib.crc32(content) != info.CRC:
        raise zipfile.BadZipFile(f"{info.filename} is damaged")
    return content
