"""The files of a sandbox, used from outside the sandbox through a descriptor of its root.

Every path is opened by openat2(2) with RESOLVE_IN_ROOT and RESOLVE_NO_MAGICLINKS. So whatever a
process in the sandbox does with its links, at any moment, they lead nowhere but into the sandbox.
The functions block; call them in a thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import stat
import struct
from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from gymmesh.sandbox.v1 import files_pb2
from gymmesh_runtime.errors import MeshError, Reason, field_invalid
from gymmesh_sandbox.errors import file_denied

_LIBC = ctypes.CDLL(None, use_errno=True)
_OPENAT2 = 437  # of both kinds of processors
_NO_MAGIC_LINKS, _NO_LINKS, _BENEATH, _IN_ROOT = 0x02, 0x04, 0x08, 0x10
_LINKS = 40
PIECE = 1 << 20
#: How a folder is opened in which files are made: its user may have no right to read it.
PASS_THROUGH = os.O_PATH | os.O_DIRECTORY
_KINDS = {
    stat.S_IFREG: files_pb2.FILE_KIND_FILE,
    stat.S_IFDIR: files_pb2.FILE_KIND_FOLDER,
    stat.S_IFLNK: files_pb2.FILE_KIND_LINK,
}
_NOBODY = 65_534
_FULL = (errno.ENOSPC, errno.EDQUOT)
_DENIED = (errno.EACCES, errno.EPERM)


@dataclass(frozen=True, slots=True)
class IdMap:
    """The sandbox's user and group ids on this machine.

    Attributes:
        first: this machine's id of `inner`, and so on for `count` ids.
    """

    first: int
    inner: int
    count: int

    def inside(self, outer: int) -> int:
        """The sandbox's id for one of this machine."""
        return outer - self.first + self.inner if self._has(outer - self.first) else _NOBODY

    def outside(self, inner: int) -> int:
        """This machine's id for an id of the sandbox. Raises ValueError if there is none."""
        if not self._has(inner - self.inner):
            raise ValueError(f"this sandbox has no user or group with the id {inner}")
        return inner - self.inner + self.first

    def _has(self, place: int) -> bool:
        return 0 <= place < self.count


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner that files will get, in the sandbox's numbers."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class _Walk:
    """How a folder is listed: see SandboxTree.list."""

    recursive: bool
    wholly: bool
    without: frozenset[bytes]


class SandboxTree:
    """A sandbox's files.

    Args:
        root: a descriptor of its root folder, which this object owns from now on.
        ids: its user ids.
        owns: whether files can be given to other users of the sandbox.
    """

    def __init__(self, root: int, ids: IdMap, *, owns: bool) -> None:
        self.root = root
        self.ids = ids
        self._owns = owns

    def close(self) -> None:
        """Closes the root; may be called twice."""
        if self.root >= 0:
            os.close(self.root)
            self.root = -1

    def resolve(self, path: bytes) -> bytes:
        """The path that this absolute path leads to, with all links followed.

        Parts that do not exist stay as they are.
        """
        _check_path(path)
        done: list[bytes] = []
        left = path.split(b"/")[::-1]
        links = 0
        while left:
            part = left.pop()
            if part in (b"", b"."):
                continue
            if part == b"..":
                del done[-1:]
                continue
            target = self._link_target(b"/".join([*done, part]))
            if target is None:
                done.append(part)
                continue
            links += 1
            if links > _LINKS:
                raise path_invalid(path, "the path has too many links")
            if target.startswith(b"/"):
                done.clear()
            left += target.split(b"/")[::-1]
        return b"/" + b"/".join(done)

    def _link_target(self, path: bytes) -> bytes | None:
        try:
            with self._opened(path, os.O_PATH | os.O_NOFOLLOW) as found:
                if stat.S_ISLNK(os.fstat(found).st_mode):
                    return os.readlink(b"", dir_fd=found)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES):
                raise self.failed(error, path) from None
        return None

    def info(self, path: bytes) -> files_pb2.FileInfo:
        """What is at the path; a link at its end is not followed."""
        folder, _, name = path.rstrip(b"/").rpartition(b"/")
        resolved = self.resolve(folder or b"/").rstrip(b"/") + b"/" + name
        if name in (b"", b".", b".."):
            resolved = self.resolve(path)
        with self.opened(resolved, os.O_PATH | os.O_NOFOLLOW) as found:
            return self._info(resolved, found)

    def _info(self, path: bytes, found: int) -> files_pb2.FileInfo:
        status = os.fstat(found)
        link = os.readlink(b"", dir_fd=found) if stat.S_ISLNK(status.st_mode) else b""
        return self.described(path, status, link)

    def described(self, path: bytes, status: os.stat_result, link: bytes) -> files_pb2.FileInfo:
        """A file's status in the contract's form."""
        return files_pb2.FileInfo(
            path=path,
            kind=_KINDS.get(stat.S_IFMT(status.st_mode), files_pb2.FILE_KIND_UNSPECIFIED),
            size=status.st_size if stat.S_ISREG(status.st_mode) else 0,
            mode=stat.S_IMODE(status.st_mode),
            uid=self.ids.inside(status.st_uid),
            gid=self.ids.inside(status.st_gid),
            modified_unix_nano=max(0, status.st_mtime_ns),
            link_target=link,
        )

    def read(self, path: bytes, offset: int, max_bytes: int) -> Iterator[bytes]:
        """The content of a plain file in pieces; `max_bytes` 0: all."""
        with self.opened(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) as file:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise path_invalid(path, "the path is not a plain file")
            left = max_bytes or None
            while left is None or left > 0:
                size = PIECE if left is None else min(PIECE, left)
                try:
                    piece = os.pread(file, size, offset)
                except OSError as error:
                    raise self.failed(error, path) from None
                if not piece:
                    return
                yield piece
                offset += len(piece)
                left = None if left is None else left - len(piece)

    def read_small(self, path: bytes, max_bytes: int) -> bytes:
        """A small file's content; empty if there is no such file."""
        try:
            return b"".join(self.read(path, 0, max_bytes))
        except MeshError:
            return b""

    def write(self, file: files_pb2.FileContent, path: bytes, owner: Owner) -> None:
        """Writes a file at an absolute path, as FileContent says."""
        folder, _, name = path.rpartition(b"/")
        if name in (b"", b".", b".."):
            raise path_invalid(path, "the path does not name a file")
        with self._errors(path), self.folder(folder or b"/", owner, PASS_THROUGH) as parent:
            if file.HasField("offset"):
                self._write_piece(file, path, parent, name, owner)
            else:
                self._write_whole(file, parent, name, owner)

    def _write_whole(
        self, file: files_pb2.FileContent, parent: int, name: bytes, owner: Owner
    ) -> None:
        temporary = b".gymmesh-" + secrets.token_hex(8).encode()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600, dir_fd=parent)
        try:
            try:
                write_all(descriptor, file.content)
                self.give(descriptor, owner, (file.mode or 0o644) & 0o7777)
            finally:
                os.close(descriptor)
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=parent)
            raise

    def _write_piece(
        self, file: files_pb2.FileContent, path: bytes, parent: int, name: bytes, owner: Owner
    ) -> None:
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        if file.offset == 0:
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                    os.unlink(name, dir_fd=parent)
        made = False
        try:
            descriptor = os.open(name, flags, dir_fd=parent)
        except FileNotFoundError:
            if file.offset:
                raise field_invalid("file.offset", "is beyond the end of the file") from None
            descriptor = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=parent)
            made = True
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise path_invalid(path, "the path is not a plain file")
            if file.offset > status.st_size:
                raise field_invalid("file.offset", "is beyond the end of the file")
            os.lseek(descriptor, file.offset, os.SEEK_SET)
            write_all(descriptor, file.content)
            os.ftruncate(descriptor, file.offset + len(file.content))
            if made or file.mode:
                self.give(descriptor, owner, (file.mode or 0o644) & 0o7777)
        finally:
            os.close(descriptor)

    def give(self, descriptor: int, owner: Owner, mode: int) -> None:
        """Gives an open file its owner and mode. Raises OSError."""
        if self._owns:
            os.fchown(descriptor, self.ids.outside(owner.uid), self.ids.outside(owner.gid))
        os.fchmod(descriptor, mode)

    def give_link(self, parent: int, name: bytes, owner: Owner) -> None:
        """Gives a link its owner."""
        if self._owns:
            uid, gid = self.ids.outside(owner.uid), self.ids.outside(owner.gid)
            os.chown(name, uid, gid, dir_fd=parent, follow_symlinks=False)

    @contextmanager
    def folder(
        self, path: bytes, owner: Owner, flags: int = os.O_RDONLY | os.O_DIRECTORY
    ) -> Generator[int]:
        """A descriptor of a folder, which is created if missing. Raises OSError."""
        try:
            found = self._open(path, flags)
        except FileNotFoundError:
            self._make_folders(self.resolve(path), owner)
            found = self._open(path, flags)
        try:
            yield found
        finally:
            os.close(found)

    def _make_folders(self, path: bytes, owner: Owner) -> None:
        parts = path.strip(b"/").split(b"/")
        for depth, name in enumerate(parts):
            with self._opened(b"/" + b"/".join(parts[:depth]), PASS_THROUGH) as at:
                try:
                    os.mkdir(name, 0o755, dir_fd=at)
                except FileExistsError:
                    continue
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
                made = os.open(name, flags, dir_fd=at)
                try:
                    self.give(made, owner, 0o755)
                finally:
                    os.close(made)

    def list(
        self,
        path: bytes,
        *,
        recursive: bool,
        wholly: bool = False,
        without: Collection[bytes] = (),
    ) -> Iterator[files_pb2.FileInfo]:
        """The content of a folder, or the file itself, sorted by the bytes of the path. Links are
        not followed.

        wholly: raise for an unreadable folder below, instead of skipping it. without: absolute
        paths of folders below to skip.
        """
        resolved = self.resolve(path)
        info = self.info(resolved)
        if info.kind != files_pb2.FILE_KIND_FOLDER:
            yield info
            return
        yield from self._list(resolved, _Walk(recursive, wholly, frozenset(without)))

    def _list(self, folder: bytes, walk: _Walk) -> Iterator[files_pb2.FileInfo]:
        # The content of `a` sorts as `a/…`, behind `a-b`: each folder has a second place for it.
        waiting = [self._entries(folder, replace(walk, wholly=True))]
        while waiting:
            entry = next(waiting[-1], None)
            if entry is None:
                waiting.pop()
            elif isinstance(entry, bytes):
                waiting.append(self._entries(entry, walk))
            else:
                yield entry

    def _entries(self, folder: bytes, walk: _Walk) -> Iterator[files_pb2.FileInfo | bytes]:
        prefix = folder.rstrip(b"/") + b"/"
        found: list[tuple[bytes, files_pb2.FileInfo | bytes]] = []
        try:
            with self._opened(folder, os.O_RDONLY | os.O_DIRECTORY, _NO_LINKS) as opened:
                for name in map(os.fsencode, os.listdir(opened)):
                    info = self._entry(opened, name, prefix + name, walk)
                    if info is None:
                        continue
                    found.append((name, info))
                    if walk.recursive and info.kind == files_pb2.FILE_KIND_FOLDER:
                        found.append((name + b"/", prefix + name))
        except OSError as error:
            # A folder that was removed, replaced or is too deep to be named, is left out.
            denied = walk.wholly and error.errno in _DENIED
            if denied or error.errno in _FULL or error.errno == errno.EMFILE:
                raise self.failed(error, folder) from None
        found.sort(key=lambda one: one[0])
        return (entry for _, entry in found)

    def _entry(
        self, folder: int, name: bytes, path: bytes, walk: _Walk
    ) -> files_pb2.FileInfo | None:
        if path in walk.without:
            return None
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            link = os.readlink(name, dir_fd=folder) if stat.S_ISLNK(status.st_mode) else b""
        except OSError as error:
            if walk.wholly and error.errno in _DENIED:
                raise
            return None  # removed meanwhile
        return self.described(path, status, link)

    @contextmanager
    def opened(self, path: bytes, flags: int) -> Generator[int]:
        """A descriptor of an absolute path. Raises MeshError."""
        _check_path(path)
        with self._errors(path):
            found = self._open(path, flags)
        try:
            yield found
        finally:
            os.close(found)

    @contextmanager
    def _opened(self, path: bytes, flags: int, resolve: int = 0) -> Generator[int]:
        found = self._open(path, flags, resolve)
        try:
            yield found
        finally:
            os.close(found)

    def _open(self, path: bytes, flags: int, resolve: int = 0) -> int:
        return _openat2(self.root, path, flags, _IN_ROOT | resolve)

    @contextmanager
    def _errors(self, path: bytes) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise self.failed(error, path) from None

    def failed(self, error: OSError, path: bytes) -> MeshError:
        """The contract's error for an error of the kernel."""
        shown = path.decode("utf-8", "backslashreplace")
        if error.errno in _FULL:
            return MeshError(
                Reason.ERROR_REASON_SANDBOX_DISK_FULL,
                f"The sandbox has no space left to write {shown}.",
            )
        if error.errno == errno.ENOENT:
            return MeshError(
                Reason.ERROR_REASON_SANDBOX_FILE_NOT_FOUND,
                f"{shown} does not exist.",
                metadata={"path": shown},
            )
        if error.errno in _DENIED:
            return file_denied(path, "")
        if error.errno == errno.EBADF:
            return MeshError(
                Reason.ERROR_REASON_SANDBOX_LOST,
                "The sandbox has ended.",
                metadata={"cause": "ended"},
            )
        return path_invalid(path, error.strerror or str(error))


def open_beneath(folder: int, path: bytes, flags: int) -> int:
    """Opens a path below a folder, following links as long as they stay below the folder. Raises
    OSError.
    """
    return _openat2(folder, path or b".", flags, _BENEATH)


def _openat2(folder: int, path: bytes, flags: int, resolve: int) -> int:
    how = struct.pack("=QQQ", flags | os.O_CLOEXEC, 0, resolve | _NO_MAGIC_LINKS)
    for _ in range(100):
        found = int(_LIBC.syscall(_OPENAT2, folder, path or b"/", how, len(how)))
        if found >= 0:
            return found
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: something was renamed meanwhile
            break
    raise OSError(number, os.strerror(number), path)


def path_invalid(path: bytes, problem: str) -> MeshError:
    """SANDBOX_PATH_INVALID: `problem` says why."""
    shown = path.decode("utf-8", "backslashreplace")
    return MeshError(
        Reason.ERROR_REASON_SANDBOX_PATH_INVALID,
        f"The path '{shown}' cannot be used: {problem}.",
        metadata={"path": shown},
    )


def write_all(descriptor: int, content: bytes) -> None:
    """Writes to a file. Raises OSError."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _check_path(path: bytes) -> None:
    if b"\0" in path:
        raise path_invalid(path, "the path has a zero byte")
