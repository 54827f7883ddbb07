"""A sandbox's files, through small programs of its image."""

from __future__ import annotations

import posixpath
import re
import secrets
from collections.abc import AsyncIterator
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import files_pb2
from gymmesh_runtime.errors import MeshError, field_invalid
from gymmesh_sandbox.backends.base import MOST_ENTRIES
from gymmesh_sandbox.backends.image_shell import scripts
from gymmesh_sandbox.backends.image_shell.programs import Programs, ScriptFailed
from gymmesh_sandbox.backends.image_shell.shell import HelperShell
from gymmesh_sandbox.errors import archive_too_large, file_denied, path_invalid

_FOLDER, _LINK, _FILE, _KIND = 0o040000, 0o120000, 0o100000, 0o170000
_FRACTION: Final = re.compile(rb"\.([0-9]{9})")
_DEFAULT_MODE: Final = 0o644


class ShellFiles:
    """The files of one sandbox, used with the rights of its programs.

    Args:
        shell: for short scripts.
        workdir: where relative paths start.
        user: the user with whose rights files are used, and who owns new files; empty: root.
    """

    def __init__(
        self,
        programs: Programs,
        sandbox_id: str,
        shell: HelperShell,
        workdir: str,
        user: str = "",
    ) -> None:
        self._programs = programs
        self._sandbox_id = sandbox_id
        self._shell = shell
        self._user = user
        self._workdir = workdir.encode("utf-8", "surrogateescape")
        self._owners: dict[str, str] = {}
        self._numbers: tuple[int, int] | None = None

    def absolute(self, path: bytes) -> bytes:
        """The path from the root on."""
        return posixpath.join(self._workdir or b"/", path)

    async def resolve(self, path: bytes) -> bytes:
        """The path that this path leads to, with all links followed; parts that do not exist
        stay.
        """
        wanted = self.absolute(path)
        for _ in range(8):
            try:
                said = await self._shell.run(
                    scripts.REAL.encode() + scripts.call(b"real", (wanted,)) + b'printf %s "$found"'
                )
            except ScriptFailed:
                raise path_invalid(path, "has links that cannot be followed") from None
            # A `..` behind a part that is not there is not followed by the shell.
            found = posixpath.normpath(said)
            found = b"/" + found.lstrip(b"/")
            if found == said:
                return found
            wanted = found
        raise path_invalid(path, "has links that cannot be followed")

    async def owner(self, user: str) -> str:
        """A user's number and group, in chown's form. Raises FIELD_INVALID for an unknown user."""
        if ":" in user:
            return user
        known = self._owners.get(user)
        if known is None:
            word = scripts.quoted(user.encode())
            script = b'echo "$(id -u %s || echo -)":"$(id -g %s || echo 0)"' % (word, word)
            known = (await self._shell.run(script)).decode().strip()
            if known.startswith("-"):
                if not user.isdecimal():
                    raise field_invalid("user", f"is '{user}', but the sandbox has no such user")
                known = f"{user}:0"
            self._owners[user] = known
        return known

    async def owner_numbers(self) -> tuple[int, int]:
        """The numbers of the user with these rights, and of the user's group."""
        if self._numbers is None:
            uid, gid = (await self._shell.run(b"echo $(id -u) $(id -g)")).split()
            self._numbers = int(uid), int(gid)
        return self._numbers

    async def _owner_of(self, owner: str) -> bytes:
        if owner:
            return (await self.owner(owner)).encode()
        return b"%d:%d" % await self.owner_numbers()

    async def info(self, path: bytes) -> files_pb2.FileInfo:
        """What is at the path; a link at its end is not followed."""
        async for info in self._list(path, deep="", itself=True):
            return info
        raise self._not_found(path)

    async def listed(self, path: bytes, *, recursive: bool) -> AsyncIterator[files_pb2.FileInfo]:
        """The content of a folder, sorted by path."""
        deep = "" if recursive else "-maxdepth 1"
        async for info in self._list(path, deep=deep, itself=False):
            yield info

    async def read(self, path: bytes, offset: int, max_bytes: int) -> AsyncIterator[bytes]:
        """The content of a plain file, in pieces."""
        arguments = (
            self.absolute(path),
            b"%d" % (offset + 1),
            b"%d" % max_bytes if max_bytes else b"",
        )
        try:
            async for piece in self._programs.output(scripts.command(scripts.READ_FILE, arguments)):
                yield piece
        except ScriptFailed as failed:
            self._check(path, failed.code, failed.output)

    async def write(self, file: files_pb2.FileContent, owner: str = "") -> None:
        """Writes a file or a part of it. The file belongs to the user, or to `owner`."""
        path = self.absolute(file.path)
        above, name = posixpath.split(path)
        if name in (b"", b".", b".."):
            raise path_invalid(file.path, "names a folder")
        arguments = (
            posixpath.join(await self.resolve(above), name),
            await self._owner_of(owner),
            b"%o" % (file.mode or _DEFAULT_MODE),
            b"%d" % file.offset if file.HasField("offset") else b"",
            secrets.token_hex(12).encode(),
            self._user.encode(),
        )
        code, _, said = await self._programs.run(
            scripts.command(scripts.WRITE_FILE, arguments), file.content
        )
        self._check(file.path, code, said)

    async def make_folder(self, path: bytes, owner: str = "") -> None:
        """Creates a folder and the folders above it, if they are missing."""
        real = await self.resolve(path)
        numbers = await self._owner_of(owner)
        fold = scripts.call(b"fold", (real, numbers)).rstrip(b"\n")
        closed = scripts.call(b"closed", (real,)).rstrip(b"\n")
        script = (scripts.MAKE_FOLDER + scripts.CLOSED).encode() + fold + b" || " + closed
        try:
            await self._shell.run(script)
        except ScriptFailed as failed:
            if failed.code == scripts.DENIED and self._user:
                raise file_denied(path, self._user) from None
            raise path_invalid(path, "is not a folder") from None

    async def check_size(self, path: bytes, max_bytes: int) -> None:
        """Raises FIELD_INVALID for a folder that is too large for an archive, and
        SANDBOX_FILE_DENIED.
        """
        arguments = (path, b"%d" % max_bytes, b"%d" % MOST_ENTRIES)
        code, _, said = await self._programs.run(scripts.command(scripts.SIZE_UP, arguments))
        if code == scripts.TOO_MANY_BYTES:
            raise archive_too_large("max_archive_bytes", max_bytes)
        if code == scripts.TOO_MANY_ENTRIES:
            raise archive_too_large("the maximum number of files", MOST_ENTRIES)
        self._check(path, code, said)

    def check_unpacked(self, path: bytes, code: int, said: bytes) -> None:
        """Raises the error that the exit code of `tar` means."""
        if code == 0:
            return
        words = said.decode("utf-8", "replace")
        if "No space left" in words or "quota exceeded" in words:
            raise self.disk_full()
        if "Permission denied" in words or "Operation not permitted" in words:
            raise file_denied(path, self._user or "root")
        shown = " ".join(words.split())[:200]
        raise path_invalid(path, f"cannot be the target of the archive: {shown}")

    async def real_folders(self, paths: list[bytes]) -> list[bytes]:
        """The path that each of these paths leads to, as in `resolve`."""
        script = scripts.REAL.encode()
        for path in paths:
            script += scripts.call(b"real", (path,)) + b'printf "%s\\0" "$found"\n'
        return (await self._shell.run(script)).split(b"\0")[:-1]

    async def _list(
        self, path: bytes, *, deep: str, itself: bool
    ) -> AsyncIterator[files_pb2.FileInfo]:
        word = secrets.token_hex(16)
        start = self.absolute(path)
        above, name = posixpath.split(start.rstrip(b"/"))
        # The path of each entry is the real one, but for a link at its end.
        real = await self.resolve(start)
        if itself and name not in (b"", b".", b".."):
            real = posixpath.join(await self.resolve(above), name)
        arguments = (real, word.encode(), deep.encode(), b"x" if itself else b"")
        code, said, error = await self._programs.run(scripts.command(scripts.LIST_FILES, arguments))
        self._check(path, code, error)
        for info in read_listing(said, word.encode()):
            yield info

    def _check(self, path: bytes, code: int, said: bytes) -> None:
        if code == 0:
            return
        if code == scripts.NOT_FOUND:
            raise self._not_found(path)
        if code == scripts.DENIED:
            raise file_denied(path, self._user or "root")
        if code == scripts.NOT_VALID:
            raise path_invalid(path, "is not a plain file, or one of its folders is a file")
        if code == scripts.BEYOND_END:
            raise field_invalid("offset", "is beyond the end of the file")
        if code == scripts.DISK_FULL:
            raise self.disk_full()
        words = " ".join(said.decode("utf-8", "replace").split())
        raise path_invalid(path, f"cannot be used: {words[:200] or f'exit code {code}'}")

    def disk_full(self) -> MeshError:
        """SANDBOX_DISK_FULL."""
        return MeshError(
            errors_pb2.ERROR_REASON_SANDBOX_DISK_FULL,
            "The sandbox has no space left for the file.",
            metadata={"sandbox_id": self._sandbox_id},
        )

    def _not_found(self, path: bytes) -> MeshError:
        shown = path.decode("utf-8", "replace")
        return MeshError(
            errors_pb2.ERROR_REASON_SANDBOX_FILE_NOT_FOUND,
            f"There is no file {shown!r} in the sandbox.",
            metadata={"path": shown},
        )


def read_listing(said: bytes, word: bytes) -> list[files_pb2.FileInfo]:
    """Reads the output of LIST_FILES, sorted by the bytes of the paths."""
    found: dict[bytes, files_pb2.FileInfo] = {}
    link = b""
    for entry in said.split(word + b" ")[1:]:
        kind, _, rest = entry.partition(b" ")
        rest = rest.removesuffix(b"\n")
        if kind == b"I":
            info = _info(rest)
            found[info.path] = info
        elif kind == b"L":
            link = _tidy(rest)
        elif kind == b"T" and link in found:
            found[link].link_target = rest.removesuffix(b"x").removesuffix(b"\n")
    return [found[path] for path in sorted(found)]


def _info(text: bytes) -> files_pb2.FileInfo:
    mode, size, uid, gid, seconds, rest = text.split(b" ", 5)
    when, _, path = rest.partition(b"/")
    bits = int(mode, 16)
    kind = {
        _FILE: files_pb2.FILE_KIND_FILE,
        _FOLDER: files_pb2.FILE_KIND_FOLDER,
        _LINK: files_pb2.FILE_KIND_LINK,
    }.get(bits & _KIND, files_pb2.FILE_KIND_UNSPECIFIED)
    fraction = _FRACTION.search(when)
    return files_pb2.FileInfo(
        path=_tidy(path),
        kind=kind,
        size=int(size) if kind == files_pb2.FILE_KIND_FILE else 0,
        mode=bits & 0o7777,
        uid=int(uid),
        gid=int(gid),
        modified_unix_nano=max(0, int(seconds) * 10**9 + (int(fraction[1]) if fraction else 0)),
    )


def _tidy(path: bytes) -> bytes:
    return b"/" + path.lstrip(b"/") if path.startswith(b"//") else path
