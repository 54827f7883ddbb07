"""Archives of a sandbox's files, packed and unpacked (tar, POSIX.1-2001; GNU's long names are read,
too).

An archive that is unpacked is not trusted: its headers are read once to the end, and a bad archive
is refused as a whole, before anything is written. Links that change afterwards lead nowhere else,
because of openat2: see `tree`.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import BinaryIO, TypeAlias, TypeVar, cast

from gymmesh.sandbox.v1 import files_pb2
from gymmesh_runtime.errors import MeshError, Reason, field_invalid
from gymmesh_sandbox.backends.base import MOST_ENTRIES
from gymmesh_sandbox.backends.bubblewrap.tree import (
    PASS_THROUGH,
    PIECE,
    Owner,
    SandboxTree,
    open_beneath,
    path_invalid,
    write_all,
)
from gymmesh_sandbox.errors import archive_too_large

_BLOCK = tarfile.BLOCKSIZE
_MOST_AT_ONCE = 1 << 20
_CONTENT = 256 << 10
_HEADERS = 64 << 20
_MOST_LINKS = 40
_OF_THE_KERNEL = (b"/proc", b"/sys")
_LATEST = (1 << 33) - 1
_T = TypeVar("_T")
_GZIP_BITS = 31


def pack(
    tree: SandboxTree,
    path: bytes,
    format: files_pb2.ArchiveFormat.ValueType,
    max_bytes: int,
) -> Iterator[bytes]:
    """A folder or a file as an archive, in pieces of at most 1 MiB; see RunningSandbox."""
    plain = _packed(tree, path, max_bytes)
    if format != files_pb2.ARCHIVE_FORMAT_TAR_GZIP:
        return plain
    return _compressed(plain)


def _compressed(plain: Iterator[bytes]) -> Iterator[bytes]:
    compressor = zlib.compressobj(level=1, wbits=_GZIP_BITS)
    for piece in plain:
        if packed := compressor.compress(piece):
            yield packed
    yield compressor.flush()


def _packed(tree: SandboxTree, path: bytes, max_bytes: int) -> Iterator[bytes]:
    resolved = tree.resolve(path)
    info = tree.info(resolved)
    _check_size(_entries(tree, resolved), max_bytes)
    if info.kind == files_pb2.FILE_KIND_FOLDER:
        skipped = len(resolved.rstrip(b"/")) + 1
        for entry in _entries(tree, resolved):
            yield from _member(tree, entry, entry.path[skipped:])
    elif info.kind == files_pb2.FILE_KIND_FILE:
        yield from _member(tree, info, os.path.basename(resolved))
    else:
        raise path_invalid(path, "the path is neither a folder nor a plain file")
    yield bytes(2 * _BLOCK)


def _entries(tree: SandboxTree, path: bytes) -> Iterator[files_pb2.FileInfo]:
    return tree.list(path, recursive=True, wholly=True, without=_OF_THE_KERNEL)


def _check_size(entries: Iterator[files_pb2.FileInfo], max_bytes: int) -> None:
    size = 0
    for count, entry in enumerate(entries, 1):
        size += entry.size
        if size > max_bytes:
            raise archive_too_large("max_archive_bytes", max_bytes)
        if count > MOST_ENTRIES:
            raise archive_too_large("the maximum number of files", MOST_ENTRIES)


def _member(tree: SandboxTree, info: files_pb2.FileInfo, name: bytes) -> Iterator[bytes]:
    member = tarfile.TarInfo(os.fsdecode(name))
    member.mode, member.uid, member.gid = info.mode, info.uid, info.gid
    member.mtime = info.modified_unix_nano // 1_000_000_000
    if info.kind == files_pb2.FILE_KIND_FOLDER:
        member.type = tarfile.DIRTYPE
    elif info.kind == files_pb2.FILE_KIND_LINK:
        member.type, member.linkname = tarfile.SYMTYPE, os.fsdecode(info.link_target)
    elif info.kind == files_pb2.FILE_KIND_FILE:
        yield from _file_member(tree, info.path, member)
        return
    else:
        return
    yield _header(member)


def _file_member(tree: SandboxTree, path: bytes, member: tarfile.TarInfo) -> Iterator[bytes]:
    try:
        opened = tree.opened(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY)
        file = opened.__enter__()
    except MeshError as error:
        if error.reason == Reason.ERROR_REASON_SANDBOX_FILE_DENIED:
            raise
        return  # removed or replaced meanwhile
    with contextlib.ExitStack() as stack:
        stack.push(opened)
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            return
        member.size = status.st_size
        yield _header(member)
        left = member.size
        while left:
            # A file that became shorter meanwhile ends in zeros, as its header has promised more.
            piece = os.read(file, min(PIECE, left)) or bytes(min(PIECE, left))
            yield piece
            left -= len(piece)
        if padding := -member.size % _BLOCK:
            yield bytes(padding)


def _header(member: tarfile.TarInfo) -> bytes:
    return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def unpack(
    tree: SandboxTree,
    path: bytes,
    packed: BinaryIO,
    format: files_pb2.ArchiveFormat.ValueType,
    owner: Owner,
    max_bytes: int,
) -> None:
    """Unpacks an archive, an open file of this machine, in a folder; see RunningSandbox."""
    zipped = format == files_pb2.ARCHIVE_FORMAT_TAR_GZIP
    try:
        with tree.folder(path, owner, PASS_THROUGH) as folder:
            checker = _Checker(path, folder, max_bytes)
            for _, member in _members(packed, zipped, max_bytes):
                checker.check(member)
            for tar, member in _members(packed, zipped, max_bytes):
                _unpack_one(tree, folder, owner, tar, member)
    except tarfile.TarError as error:
        raise path_invalid(path, f"the archive is broken ({error})") from None
    except OSError as error:
        raise tree.failed(error, path) from None


def _members(
    packed: BinaryIO, zipped: bool, max_bytes: int
) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """The members of an archive. The content of a member can be read until the next member is
    requested.

    Raises tarfile.TarError.
    """
    packed.seek(0)
    plain = gzip.GzipFile(fileobj=packed) if zipped else packed
    reader = _ArchiveReader(cast(BinaryIO, plain), max_bytes)
    tar = tarfile.TarFile(fileobj=cast(BinaryIO, reader), errors="surrogateescape")
    for _ in range(MOST_ENTRIES):
        try:
            member = tar.next()
        except (ValueError, OverflowError, EOFError) as error:
            raise tarfile.ReadError(str(error)) from error
        tar.members.clear()  # type: ignore[attr-defined]  # they are kept for a second look, and there is none
        if member is None:
            return
        yield tar, member
    raise tarfile.ReadError("the archive has more than a million files")


class _ArchiveReader:
    """The file that tarfile reads from, which limits how much a header can make it read."""

    def __init__(self, plain: BinaryIO, max_bytes: int) -> None:
        self._plain = plain
        self._max_bytes = max_bytes
        self._left = 2 * max_bytes + _HEADERS

    def read(self, size: int) -> bytes:
        if size > _MOST_AT_ONCE:
            raise tarfile.ReadError("a header of the archive is larger than 1 MiB")
        content = self._checked(lambda: self._plain.read(size))
        self._left -= len(content)
        if self._left < 0:
            raise too_large(self._max_bytes)
        return content

    def seek(self, place: int) -> int:
        # A compressed archive is read up to there.
        return self._checked(lambda: self._plain.seek(place))

    def tell(self) -> int:
        return self._plain.tell()

    def _checked(self, read: Callable[[], _T]) -> _T:
        try:
            return read()
        except (OSError, EOFError, ValueError, OverflowError, zlib.error) as error:
            raise tarfile.ReadError(str(error)) from error


_Links: TypeAlias = "dict[bytes, bytes | _Links]"


class _Checker:
    """Refuses members outside the folder, and everything except files, folders and links."""

    def __init__(self, path: bytes, folder: int, max_bytes: int) -> None:
        self._path = path
        self._folder = folder
        self._max_bytes = max_bytes
        self._bytes = 0
        # The links of the archive by the folders that lead to them, each folder a mapping.
        self._links: _Links = {}
        # Digests of folders that were looked at, so that each is once, however deep it is.
        self._seen: set[bytes] = set()

    def check(self, member: tarfile.TarInfo) -> None:
        name = os.fsencode(member.name)
        if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
            raise path_invalid(name, "the path is a device or a pipe")
        parts = self._parts(name)
        place = self._followed(parts[:-1], name) + parts[-1:]
        self._check_existing(place[:-1], name)
        self._note(place, os.fsencode(member.linkname) if member.issym() else None)
        if member.islnk():
            source = self._parts(os.fsencode(member.linkname))
            self._followed(source[:-1], name)
        if member.isreg():
            self._bytes += member.size
            if self._bytes > self._max_bytes:
                raise too_large(self._max_bytes)

    def _parts(self, name: bytes) -> tuple[bytes, ...]:
        parts = tuple(part for part in name.split(b"/") if part not in (b"", b"."))
        if name.startswith(b"/") or b".." in parts or b"\0" in name:
            raise path_invalid(name, "the path is outside the target folder")
        return parts

    def _followed(self, parts: tuple[bytes, ...], name: bytes) -> tuple[bytes, ...]:
        """The place of a folder of the archive, after the archive's own links."""
        done: list[bytes] = []
        folders: list[_Links] = [self._links]
        left = list(parts[::-1])
        links = 0
        while left:
            part = left.pop()
            if part == b"..":
                if not done:
                    raise path_invalid(name, "the path is outside the target folder")
                done.pop()
                folders.pop()
                continue
            target = folders[-1].get(part, {})
            if not isinstance(target, bytes):
                done.append(part)
                folders.append(target)
                continue
            links += 1
            if target.startswith(b"/") or links > _MOST_LINKS:
                raise path_invalid(name, "the path is behind a link that leaves the target folder")
            left += [one for one in target.split(b"/")[::-1] if one not in (b"", b".")]
        return tuple(done)

    def _note(self, place: tuple[bytes, ...], target: bytes | None) -> None:
        """Notes what is at a place from now on: a link, or something else."""
        if not place:
            return  # the folder itself
        folder = self._links
        for part in place[:-1]:
            below = folder.get(part)
            if not isinstance(below, dict):
                if target is None:
                    return
                below = folder[part] = {}
            folder = below
        if target is not None:
            folder[place[-1]] = target
        elif isinstance(folder.get(place[-1]), bytes):
            del folder[place[-1]]

    def _check_existing(self, parts: tuple[bytes, ...], name: bytes) -> None:
        """The same check, for links that are already in the folder."""
        digest, above = _digest(parts), _digest(parts[:-1])
        if digest in self._seen:
            return
        self._seen.add(digest)
        if above in self._seen:
            self._check_one(parts, name)
            return
        for depth in range(1, len(parts) + 1):
            if not self._check_one(parts[:depth], name):
                return

    def _check_one(self, parts: tuple[bytes, ...], name: bytes) -> bool:
        """Whether something is at this place; raises if the place is not below the folder."""
        try:
            os.close(open_beneath(self._folder, b"/".join(parts), os.O_PATH))
        except OSError as error:
            if error.errno == errno.ENOENT:
                return False
            raise path_invalid(
                name, "the path is behind a link that leaves the target folder"
            ) from None
        return True


def _digest(parts: tuple[bytes, ...]) -> bytes:
    return blake2b(b"/".join(parts), digest_size=16).digest()


def _unpack_one(
    tree: SandboxTree, folder: int, owner: Owner, tar: tarfile.TarFile, member: tarfile.TarInfo
) -> None:
    path = os.fsencode(member.name).strip(b"/")
    above, _, name = path.rpartition(b"/")
    if name in (b"", b"."):
        return
    parent = _folder_beneath(tree, folder, above, owner)
    try:
        mode = member.mode & 0o777
        if member.isdir():
            _make_folder(tree, parent, name, owner, mode)
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)
        if member.issym():
            os.symlink(os.fsencode(member.linkname), name, dir_fd=parent)
            tree.give_link(parent, name, owner)
        elif member.islnk():
            _make_hard_link(folder, os.fsencode(member.linkname), parent, name)
        else:
            _write_member(tree, parent, name, owner, mode, tar, member)
    finally:
        os.close(parent)


def _folder_beneath(tree: SandboxTree, folder: int, path: bytes, owner: Owner) -> int:
    """A folder below another folder, created if missing."""
    parts = [part for part in path.split(b"/") if part not in (b"", b".")]
    with contextlib.suppress(OSError):
        return open_beneath(folder, b"/".join(parts), PASS_THROUGH)  # it is there, mostly
    for depth, name in enumerate(parts):
        parent = open_beneath(folder, b"/".join(parts[:depth]), PASS_THROUGH)
        try:
            _make_folder(tree, parent, name, owner, None)
        finally:
            os.close(parent)
    return open_beneath(folder, b"/".join(parts), PASS_THROUGH)


def _make_folder(
    tree: SandboxTree, parent: int, name: bytes, owner: Owner, mode: int | None
) -> None:
    """Creates a folder. An existing folder keeps its owner, and keeps its mode if None is given."""
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
        made = True
    except FileExistsError:
        made = False
    if not made and mode is None:
        return
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        found = os.open(name, flags, dir_fd=parent)
    except NotADirectoryError:
        return  # a link that stands for a folder; what lies below it is looked up beneath
    try:
        if made:
            tree.give(found, owner, 0o755 if mode is None else mode)
        elif mode is not None:
            os.fchmod(found, mode)
    finally:
        os.close(found)


def _make_hard_link(folder: int, source: bytes, parent: int, name: bytes) -> None:
    above, _, source_name = source.strip(b"/").rpartition(b"/")
    source_parent = open_beneath(folder, above, PASS_THROUGH)
    try:
        os.link(
            source_name,
            name,
            src_dir_fd=source_parent,
            dst_dir_fd=parent,
            follow_symlinks=False,
        )
    finally:
        os.close(source_parent)


def _write_member(
    tree: SandboxTree,
    parent: int,
    name: bytes,
    owner: Owner,
    mode: int,
    tar: tarfile.TarFile,
    member: tarfile.TarInfo,
) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=parent)
    try:
        content = tar.extractfile(member)
        while content is not None and (piece := content.read(_CONTENT)):
            write_all(descriptor, piece)
        tree.give(descriptor, owner, mode)
        seconds = max(0, min(int(member.mtime), _LATEST))
        os.utime(descriptor, (seconds, seconds))
    finally:
        os.close(descriptor)


def too_large(max_bytes: int) -> MeshError:
    """FIELD_INVALID for an archive that unpacks to more than the limit."""
    return field_invalid("content", f"unpacks to more than {max_bytes} bytes")
