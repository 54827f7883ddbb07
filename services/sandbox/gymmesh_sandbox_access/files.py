"""The files of a sandbox: read, written, listed, and transferred as archives."""

from __future__ import annotations

import asyncio
import gzip
import io
import tarfile
import uuid
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final

from gymmesh.sandbox.v1 import files_pb2
from gymmesh_runtime.errors import from_status
from gymmesh_sandbox_access.connection import SandboxConnection
from gymmesh_sandbox_access.spec import content_bytes, path_bytes

# Bytes of one request: a longer file travels in pieces, and several files together up to here.
_PIECE: Final = 4 << 20
_MOST_READ: Final = 1024
_CALL_S: Final = 600.0


class SandboxFiles:
    """The files of a sandbox. Paths are absolute in the sandbox or relative to its workdir, and
    never lead out of the sandbox.

    Every method has the rights of one user of the sandbox, `user`; empty: the sandbox's own user,
    or the lease's. `root` may use all files. Files that a method creates belong to this user.

    Every method raises MeshError: SANDBOX_FILE_NOT_FOUND, SANDBOX_FILE_DENIED (the user lacks the
    permission), SANDBOX_PATH_INVALID (such as a folder in place of a file), SANDBOX_DISK_FULL, and
    the sandbox's own errors.
    """

    def __init__(self, connection: SandboxConnection) -> None:
        self._connection = connection

    async def read(
        self, path: str | bytes, *, offset: int = 0, max_bytes: int = 0, user: str = ""
    ) -> bytes:
        """The content of a plain file; `max_bytes` 0: all of it."""
        found = await self._read([path_bytes(path)], offset, max_bytes, user)
        return found[0]

    async def read_text(self, path: str | bytes, *, user: str = "") -> str:
        """The content of a plain file as text; bytes that are not UTF-8 are replaced."""
        return (await self.read(path, user=user)).decode("utf-8", "replace")

    async def read_many(self, paths: Sequence[str], *, user: str = "") -> dict[str, bytes]:
        """The contents of plain files by their paths."""
        found: dict[str, bytes] = {}
        for start in range(0, len(paths), _MOST_READ):
            names = paths[start : start + _MOST_READ]
            contents = await self._read([path_bytes(name) for name in names], 0, 0, user)
            found |= zip(names, contents, strict=True)
        return found

    async def write(
        self, path: str | bytes, content: str | bytes, *, mode: int = 0, user: str = ""
    ) -> None:
        """Writes a file and the folders above it; `mode` 0: 0644."""
        await self._write_all([(path, content)], mode, user)

    async def write_many(
        self,
        files: Mapping[str, str | bytes] | Mapping[str, str] | Mapping[str, bytes],
        *,
        mode: int = 0,
        user: str = "",
    ) -> None:
        """Writes files by their paths, in order. While a file over 4 MiB is written, programs
        can see parts of it.
        """
        await self._write_all(files.items(), mode, user)

    async def _write_all(
        self, files: Iterable[tuple[str | bytes, str | bytes]], mode: int, user: str
    ) -> None:
        batch: list[files_pb2.FileContent] = []
        size = 0
        for path, content in files:
            for piece in _pieces(path_bytes(path), content_bytes(content), mode):
                if size + len(piece.content) > _PIECE and batch:
                    await self._write(batch, user)
                    batch, size = [], 0
                batch.append(piece)
                size += len(piece.content)
        if batch:
            await self._write(batch, user)

    async def list(
        self, path: str | bytes = "", *, recursive: bool = False, user: str = ""
    ) -> list[files_pb2.FileInfo]:
        """The content of a folder (by default the workdir), sorted by path; links are not
        followed.
        """
        request = files_pb2.ListFilesRequest(path=path_bytes(path), recursive=recursive, user=user)
        found: list[files_pb2.FileInfo] = []
        while True:
            page = await self._connection.call(lambda peer: peer.ListFiles, request, _CALL_S)
            found += page.files
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    async def archive(self, path: str | bytes, *, user: str = "") -> bytes:
        """A folder or file as a tar archive, compressed with gzip."""
        pieces = self.archive_pieces(path, user=user)
        async with aclosing(pieces):
            return b"".join([piece async for piece in pieces])

    async def archive_pieces(self, path: str | bytes, *, user: str = "") -> AsyncGenerator[bytes]:
        """Like `archive`, but piece by piece. Raises SANDBOX_LOST if the transfer is
        interrupted.
        """
        request = files_pb2.ReadArchiveRequest(
            path=path_bytes(path), format=files_pb2.ARCHIVE_FORMAT_TAR_GZIP, user=user
        )
        asked = 0

        def once() -> files_pb2.ReadArchiveRequest:
            # A second archive need not have the same bytes, so only what nobody saw is repeated.
            nonlocal asked
            asked += 1
            if asked > 1 and sent:
                raise self._connection.broken("the transfer of an archive was interrupted")
            return request

        sent = False
        answers = self._connection.stream(lambda peer: peer.ReadArchive, once, _CALL_S)
        async with aclosing(answers):
            async for answer in answers:
                if answer.content:
                    sent = True
                    yield answer.content
                if answer.last:
                    return
        raise self._connection.broken("the transfer of an archive ended too early")

    async def unpack(self, archive: bytes, path: str | bytes, *, user: str = "") -> None:
        """Unpacks a tar archive, plain or compressed with gzip, in a folder, which is created if
        missing.
        """
        zipped = archive[:2] == b"\x1f\x8b"
        request = files_pb2.WriteArchiveRequest(
            request_id=uuid.uuid4().hex,
            path=path_bytes(path),
            format=files_pb2.ARCHIVE_FORMAT_TAR_GZIP if zipped else files_pb2.ARCHIVE_FORMAT_TAR,
            user=user,
        )
        while True:
            request.content = archive[request.offset : request.offset + _PIECE]
            request.last = request.offset + len(request.content) == len(archive)
            answer = await self._connection.call(lambda peer: peer.WriteArchive, request, _CALL_S)
            if request.last:
                return
            request.offset = answer.received

    async def upload(self, source: str | Path, path: str | bytes, *, user: str = "") -> None:
        """Copies a local folder's content, or a file, into a folder of the sandbox."""
        archive = await asyncio.to_thread(packed, Path(source))
        await self.unpack(archive, path, user=user)

    async def _read(
        self, paths: Sequence[bytes], offset: int, max_bytes: int, user: str
    ) -> Sequence[bytes]:
        """The contents, in order. If a stream is interrupted, the missing files are requested
        again.
        """
        contents = [bytearray() for _ in paths]
        done = 0  # files that are complete
        base = 0  # the first of the request under way

        def asked() -> files_pb2.ReadFilesRequest:
            nonlocal base
            base = done
            for content in contents[done:]:
                content.clear()
            return files_pb2.ReadFilesRequest(
                paths=paths[done:], offset=offset, max_bytes=max_bytes, user=user
            )

        answers = self._connection.stream(lambda peer: peer.ReadFiles, asked, _CALL_S)
        async with aclosing(answers):
            async for answer in answers:
                part = answer.WhichOneof("part")
                if part == "content":
                    contents[base + answer.index] += answer.content
                elif part == "error":
                    raise from_status(answer.error)
                elif part == "info":
                    done = base + answer.index + 1
        if done != len(paths):
            raise self._connection.broken("the transfer of a file ended too early")
        return [bytes(content) for content in contents]

    async def _write(self, files: Iterable[files_pb2.FileContent], user: str) -> None:
        request = files_pb2.WriteFilesRequest(files=files, user=user)
        await self._connection.call(lambda peer: peer.WriteFiles, request, _CALL_S)


def _pieces(path: bytes, content: bytes, mode: int) -> Iterable[files_pb2.FileContent]:
    """A file to write: as a whole or, if it is too long, in pieces that follow one another."""
    if len(content) <= _PIECE:
        yield files_pb2.FileContent(path=path, content=content, mode=mode)
        return
    for start in range(0, len(content), _PIECE):
        yield files_pb2.FileContent(
            path=path, content=content[start : start + _PIECE], mode=mode, offset=start
        )


def packed(source: Path, without: Collection[str] = ()) -> bytes:
    """A local folder's content, or a file, as a tar archive without owners.

    The same files give the same bytes. without: paths below the folder that are omitted, with
    everything in them. Raises OSError.
    """

    def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if member.name in without else _nobodys(member)

    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        members = sorted(source.iterdir()) if source.is_dir() else [source]
        for member in members:
            archive.add(member, arcname=member.name, filter=kept)
    return buffer.getvalue()


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """The member without its owner; None for anything but a file, a folder or a link."""
    if not (member.isfile() or member.isdir() or member.issym()):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
