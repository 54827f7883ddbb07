"""Artifacts: files of the agent's sandbox that tests in a separate sandbox get.

The agent wrote the artifacts. So only files, folders and links within an artifact are copied,
without their owners. A file that cannot be read is missing, as in Harbor.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import shlex
import tarfile
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Final, Literal, TypeAlias

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import files_pb2
from gymmesh_resource import SandboxHandle
from gymmesh_resource.environments._in_sandbox import run_line
from gymmesh_resource.environments.harbor.task import Artifact
from gymmesh_runtime.errors import MeshError

_Kind: TypeAlias = Literal["file", "folder"]
_PUT_S: Final = 60.0
_KINDS: Final[dict[int, _Kind]] = {
    files_pb2.FILE_KIND_FILE: "file",
    files_pb2.FILE_KIND_FOLDER: "folder",
}
_MISSING: Final = (
    errors_pb2.ERROR_REASON_SANDBOX_FILE_NOT_FOUND,
    errors_pb2.ERROR_REASON_SANDBOX_FILE_DENIED,
    errors_pb2.ERROR_REASON_SANDBOX_PATH_INVALID,
    # More than the service packs.
    errors_pb2.ERROR_REASON_FIELD_INVALID,
)


@dataclass(frozen=True, slots=True)
class TakenArtifact:
    """An artifact: its path, what it is, and a tar archive of the folder's content or the file."""

    path: str
    kind: _Kind
    archive: bytes


async def take(
    sandbox: SandboxHandle, artifacts: Iterable[Artifact], most_bytes: int, *, user: str
) -> list[TakenArtifact]:
    """The artifacts that exist. One whose archive is over `most_bytes` is treated as missing.

    Raises MeshError where the sandbox is lost.
    """
    taken: list[TakenArtifact] = []
    for one in artifacts:
        try:
            kind = await _kind_of(sandbox, one.path, user)
            packed = b"" if kind is None else await _archive(sandbox, one.path, most_bytes, user)
        except MeshError as error:
            if error.reason in _MISSING:
                continue
            raise
        if kind is not None and packed:
            archive = await asyncio.to_thread(cleaned, packed, one.without)
            taken.append(TakenArtifact(one.path, kind, archive))
    return taken


async def put(sandbox: SandboxHandle, artifacts: Sequence[TakenArtifact], *, user: str) -> None:
    """Puts artifacts where they were, in another sandbox; a folder loses what was in it."""
    for one in artifacts:
        folder = one.path if one.kind == "folder" else str(PurePosixPath(one.path).parent)
        place = shlex.quote(folder)
        if one.kind == "folder":
            line = f"rm -rf {place} && mkdir -p {place} && chmod 777 {place}"
        else:
            line = f"[ -d {place} ] || (mkdir -p {place} && chmod 777 {place})"
        await run_line(sandbox, line, _PUT_S, user=user, cwd="/")
        await sandbox.files.unpack(one.archive, folder, user=user)


async def _kind_of(sandbox: SandboxHandle, path: str, user: str) -> _Kind | None:
    """What is at a path; None: nothing, or neither file nor folder."""
    if path == "/":
        return None
    around = await sandbox.files.list(str(PurePosixPath(path).parent), user=user)
    kind = next((one.kind for one in around if one.path == path.encode()), None)
    return None if kind is None else _KINDS.get(kind)


async def _archive(sandbox: SandboxHandle, path: str, most_bytes: int, user: str) -> bytes:
    """The archive of a path; empty where it is too long."""
    content = bytearray()
    async with aclosing(sandbox.files.archive_pieces(path, user=user)) as pieces:
        async for piece in pieces:
            content += piece
            if len(content) > most_bytes:
                return b""
    return bytes(content)


def cleaned(archive: bytes, without: Sequence[str] = ()) -> bytes:
    """An archive of its files, folders and inner links, except those that match a pattern."""
    buffer = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive), mode="r:*") as source,
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as target,
    ):
        for member in source:
            parts = PurePosixPath(member.name).parts
            if ".." in parts or any(is_excluded(parts, pattern) for pattern in without):
                continue
            made = _harmless(member)
            if made is None:
                continue
            content = source.extractfile(member) if made.isreg() else None
            if made.isreg() and content is not None:
                made.size = content.seek(0, io.SEEK_END)
                content.seek(0)
            target.addfile(made, content)
    return buffer.getvalue()


def _harmless(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """A member without owner and special rights; None for what is not carried over."""
    made = tarfile.TarInfo(member.name)
    made.mtime, made.mode = int(member.mtime), member.mode & 0o777
    if member.isdir():
        made.type = tarfile.DIRTYPE
    elif member.issym():
        if not _stays_inside(member):
            return None
        made.type, made.linkname = tarfile.SYMTYPE, member.linkname
    elif not (member.isreg() or member.islnk()):
        return None
    return made


def _stays_inside(link: tarfile.TarInfo) -> bool:
    """Whether a link leads to a place within the archive, whatever other links do.

    `..` behind a name could go up from the place that a link of this name leads to.
    """
    parts = PurePosixPath(link.linkname).parts
    named = next((place for place, part in enumerate(parts) if part != ".."), len(parts))
    depth = len(PurePosixPath(link.name).parts) - 1
    return not link.linkname.startswith("/") and named <= depth and ".." not in parts[named:]


def is_excluded(parts: Sequence[str], pattern: str) -> bool:
    """Whether a path, or a folder above it, matches a pattern, as tar's `--exclude` has it: from
    any folder on, and `*` matches a slash, too.
    """
    wanted = pattern.removeprefix("./").rstrip("/")
    return any(
        fnmatchcase("/".join(parts[start:end]), wanted)
        for start in range(len(parts))
        for end in range(start + 1, len(parts) + 1)
    )
