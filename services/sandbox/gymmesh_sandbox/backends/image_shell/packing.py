"""Archives of a sandbox's files, packed and unpacked with the image's `tar` and one user's
rights.
"""

from __future__ import annotations

import asyncio
import posixpath
import tempfile
import zlib
from collections.abc import AsyncIterator, Iterator
from tarfile import TarError
from typing import IO, Final, TypeAlias

from gymmesh.sandbox.v1 import files_pb2
from gymmesh_sandbox.backends.image_shell import archives
from gymmesh_sandbox.backends.image_shell.files import ShellFiles
from gymmesh_sandbox.backends.image_shell.programs import Programs, ScriptFailed
from gymmesh_sandbox.backends.image_shell.transfer import transformed
from gymmesh_sandbox.errors import path_invalid

_PIECE_BYTES: Final = 1 << 18
_OF_THE_KERNEL: Final = ("--exclude=./proc", "--exclude=./sys")

_Format: TypeAlias = files_pb2.ArchiveFormat.ValueType


async def packed(
    files: ShellFiles, programs: Programs, path: bytes, format: _Format, max_bytes: int
) -> AsyncIterator[bytes]:
    """A folder or file as an archive; see RunningSandbox.read_archive."""
    real = await files.resolve(path)
    info = await files.info(real)
    await files.check_size(real, max_bytes)
    is_folder = info.kind == files_pb2.FILE_KIND_FOLDER
    # Names that begin with a dash would be options of tar.
    above, name = (real, b".") if is_folder else (posixpath.dirname(real), b"./" + _base(real))
    excluded = _OF_THE_KERNEL if real == b"/" else ()
    argv = ("tar", "-c", "-f", "-", *excluded, "-C", _text(above), _text(name))

    def work(source: IO[bytes], written: IO[bytes]) -> None:
        with (
            archives.open_archive(source, "r|") as sent,
            archives.open_archive(written, f"w|{archives.COMPRESSION[format]}") as target,
        ):
            archives.relative(sent, target, "." if is_folder else "")

    try:
        async for piece in transformed(programs.output(argv), work):
            yield piece
    except (ScriptFailed, TarError):
        raise path_invalid(path, "cannot be packed by the image's 'tar'") from None


async def checked_folder(
    files: ShellFiles, path: bytes, archive: str, format: _Format, max_bytes: int
) -> bytes:
    """The folder in which an archive will be unpacked; created if missing.

    Raises SANDBOX_PATH_INVALID for an archive that cannot be read or would leave the folder.
    """
    mode = f"r|{archives.COMPRESSION[format]}"
    try:
        folders = await asyncio.to_thread(archives.folders_of_file, archive, mode, path, max_bytes)
    except (TarError, EOFError, zlib.error, OSError):
        raise path_invalid(
            path,
            "cannot be the target of the archive: the data is not an archive of the requested "
            "format",
        ) from None
    real = await files.resolve(path)
    for wanted in await files.real_folders([posixpath.join(real, f) for f in folders]):
        if wanted != real and not wanted.startswith(real.rstrip(b"/") + b"/"):
            raise path_invalid(wanted, "is outside the target folder, behind a link")
    await files.make_folder(real)
    return real


async def unpacked(
    files: ShellFiles,
    programs: Programs,
    path: bytes,
    archive: str,
    format: _Format,
    max_bytes: int,
) -> None:
    """Unpacks an archive in a folder; see RunningSandbox.write_archive."""
    real = await checked_folder(files, path, archive, format, max_bytes)
    mode = f"r|{archives.COMPRESSION[format]}"
    uid, gid = await files.owner_numbers()
    with tempfile.TemporaryFile() as spool:
        await asyncio.to_thread(archives.owned_file, archive, mode, spool, uid, gid)
        code, _, said = await programs.feed(
            ("tar", "-x", "-p", "-f", "-", "-C", _text(real)), _pieces(spool)
        )
    files.check_unpacked(path, code, said)


def _base(path: bytes) -> bytes:
    return posixpath.basename(path)


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(_PIECE_BYTES):
        yield piece
