"""The calls for a sandbox's files: paths are checked against the lease, and content is sent in
pieces.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import files_pb2
from gymmesh_runtime.errors import MeshError, field_invalid, to_status
from gymmesh_sandbox.errors import path_invalid
from gymmesh_sandbox.leases import Lease
from gymmesh_sandbox.live import LiveSandbox
from gymmesh_sandbox.requests import check_path

_MOST_FILES: Final = 1024
_PAGE: Final = 1000
_LARGEST_PAGE: Final = 10_000
_PIECE_BYTES: Final = 1 << 20
# Of one file, after which the next one may be read.
_OF_A_FILE: Final = frozenset(
    (
        errors_pb2.ERROR_REASON_SANDBOX_FILE_NOT_FOUND,
        errors_pb2.ERROR_REASON_SANDBOX_FILE_DENIED,
        errors_pb2.ERROR_REASON_SANDBOX_PATH_INVALID,
    )
)


async def read_files(
    sandbox: LiveSandbox, lease: Lease, request: files_pb2.ReadFilesRequest
) -> AsyncGenerator[files_pb2.ReadFilesResponse, None]:
    """Reads plain files, one after another."""
    if len(request.paths) > _MOST_FILES:
        raise field_invalid("paths", f"has {len(request.paths)} paths, more than {_MOST_FILES}")
    user = _user_of(sandbox, lease, request.user)
    for index, path in enumerate(request.paths):
        try:
            check_path(path)
            real = await _followed(sandbox, lease, path, user)
            reading = sandbox.running.read_file(real, request.offset, request.max_bytes, user)
            async with aclosing(sandbox.each(reading)) as pieces:
                async for piece in pieces:
                    for content in _pieces(piece):
                        yield files_pb2.ReadFilesResponse(index=index, content=content)
            with sandbox.call():
                info = await sandbox.running.file_info(real, user)
        except MeshError as error:
            if error.reason not in _OF_A_FILE:
                raise
            yield files_pb2.ReadFilesResponse(index=index, error=to_status(error))
        else:
            yield files_pb2.ReadFilesResponse(index=index, info=info)


async def write_files(
    sandbox: LiveSandbox, lease: Lease, request: files_pb2.WriteFilesRequest
) -> None:
    """Writes plain files in their order."""
    user = _user_of(sandbox, lease, request.user)
    for file in request.files:
        check_path(file.path)
    for file in request.files:
        wanted = file
        if lease.scope.folder:
            wanted = files_pb2.FileContent()
            wanted.CopyFrom(file)
            wanted.path = await _place_of(sandbox, lease, file.path, user)
        with sandbox.call():
            await sandbox.running.write_file(wanted, user)


async def list_files(
    sandbox: LiveSandbox, lease: Lease, request: files_pb2.ListFilesRequest
) -> files_pb2.ListFilesResponse:
    """A page of the content of a folder."""
    path = request.path or sandbox.running.workdir.encode() or b"/"
    check_path(path)
    user = _user_of(sandbox, lease, request.user)
    if lease.scope.folder:
        path = await _followed(sandbox, lease, path, user)
    if request.page_size < 0:
        raise field_invalid("page_size", "is negative")
    size = min(request.page_size or _PAGE, _LARGEST_PAGE)
    after = _read_token(request.page_token)
    found: list[files_pb2.FileInfo] = []
    listed = sandbox.each(sandbox.running.list_files(path, user, recursive=request.recursive))
    async with aclosing(listed) as listing:
        async for info in listing:
            if after and info.path <= after:
                continue
            if len(found) == size:
                token = base64.urlsafe_b64encode(found[-1].path).decode()
                return files_pb2.ListFilesResponse(files=found, next_page_token=token)
            found.append(info)
    return files_pb2.ListFilesResponse(files=found)


async def read_archive(
    sandbox: LiveSandbox, lease: Lease, request: files_pb2.ReadArchiveRequest, max_bytes: int
) -> AsyncGenerator[files_pb2.ReadArchiveResponse, None]:
    """Reads a folder, or a file, as an archive."""
    check_path(request.path)
    path, user = request.path, _user_of(sandbox, lease, request.user)
    if lease.scope.folder:
        path = await _followed(sandbox, lease, path, user)
    reading = sandbox.running.read_archive(path, _format(request.format), user, max_bytes)
    async with aclosing(sandbox.each(reading)) as pieces:
        async for piece in pieces:
            for content in _pieces(piece):
                yield files_pb2.ReadArchiveResponse(content=content)
    yield files_pb2.ReadArchiveResponse(last=True)


async def write_archive(
    sandbox: LiveSandbox, lease: Lease, request: files_pb2.WriteArchiveRequest, max_bytes: int
) -> int:
    """Adds a piece of an archive, and unpacks the archive after the last piece. Returns the
    bytes that arrived so far.
    """
    check_path(request.path)
    user = _user_of(sandbox, lease, request.user)
    path = request.path
    if lease.scope.folder:
        path = await _followed(sandbox, lease, path, user)

    async def unpack(archive: str) -> None:
        with sandbox.call():
            await sandbox.running.write_archive(
                path, archive, _format(request.format), user, max_bytes
            )

    return await sandbox.archives.add(request, unpack)


async def folder_of_scope(sandbox: LiveSandbox, lease: Lease, folder: str) -> bytes:
    """The folder to which a lease is restricted, with all links followed; empty: none."""
    if not folder:
        return b""
    path = folder.encode("utf-8", "surrogateescape")
    check_path(path)
    with sandbox.call():
        return await sandbox.running.resolve(path, _user_of(sandbox, lease, ""))


def _user_of(sandbox: LiveSandbox, lease: Lease, asked: str) -> str:
    """The user whose rights apply to a call."""
    return asked or lease.scope.user or sandbox.running.user


async def _followed(sandbox: LiveSandbox, lease: Lease, path: bytes, user: str) -> bytes:
    """The path with all links followed, which must be in the lease's folder."""
    with sandbox.call():
        real = await sandbox.running.resolve(path, user)
    sandbox.leases.check_path(lease, real)
    return real


async def _place_of(sandbox: LiveSandbox, lease: Lease, path: bytes, user: str) -> bytes:
    """Where a file is written: links above the file are followed, the file itself is not."""
    above, _, name = path.rstrip(b"/").rpartition(b"/")
    if name in (b"", b".", b".."):
        raise path_invalid(path, "names a folder")
    if not above:
        above = b"/" if path.startswith(b"/") else sandbox.running.workdir.encode()
    return (await _followed(sandbox, lease, above, user)).rstrip(b"/") + b"/" + name


def _pieces(content: bytes) -> list[bytes]:
    if len(content) <= _PIECE_BYTES:
        return [content] if content else []
    return [content[at : at + _PIECE_BYTES] for at in range(0, len(content), _PIECE_BYTES)]


def _format(asked: files_pb2.ArchiveFormat.ValueType) -> files_pb2.ArchiveFormat.ValueType:
    if asked == files_pb2.ARCHIVE_FORMAT_UNSPECIFIED:
        return files_pb2.ARCHIVE_FORMAT_TAR
    if asked not in (files_pb2.ARCHIVE_FORMAT_TAR, files_pb2.ARCHIVE_FORMAT_TAR_GZIP):
        raise field_invalid(
            "format",
            f"is {asked}; this service supports only tar archives, "
            "uncompressed or compressed with gzip",
        )
    return asked


def _read_token(token: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(token.encode())
    except (binascii.Error, ValueError):
        raise field_invalid("page_token", "was not issued by this service") from None
