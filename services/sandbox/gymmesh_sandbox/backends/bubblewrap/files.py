"""The files of a bubblewrap sandbox, as its service reads and writes them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from gymmesh.sandbox.v1 import files_pb2
from gymmesh_runtime.errors import MeshError, Reason
from gymmesh_sandbox.backends.base import RunningSandbox
from gymmesh_sandbox.backends.bubblewrap.archives import pack, unpack
from gymmesh_sandbox.backends.bubblewrap.errors import option_unsupported
from gymmesh_sandbox.backends.bubblewrap.machine import Machine
from gymmesh_sandbox.backends.bubblewrap.rights import FileRights
from gymmesh_sandbox.backends.bubblewrap.shared_use import SharedUse
from gymmesh_sandbox.backends.bubblewrap.tree import Owner, SandboxTree
from gymmesh_sandbox.backends.bubblewrap.users import ImageUser, find_user
from gymmesh_sandbox.errors import file_denied

_SMALL_FILE = 1 << 20


class BoxFiles(RunningSandbox):
    """The part of RunningSandbox for files. `tree` is the sandbox's file system.

    Args:
        user: the sandbox's own user.
        workdir: where relative paths begin.
    """

    def __init__(self, machine: Machine, user: ImageUser, workdir: str) -> None:
        self.user = user.name
        self.workdir = workdir
        self._machine = machine
        self._user = user
        self._use = SharedUse()
        self._tree = SandboxTree(-1, machine.ids(user.uid), owns=machine.privileged)

    async def resolve(self, path: bytes, user: str) -> bytes:
        async with self._use.shared():
            rights = self._rights(await self._user_of(user))
            with _denied_to(user):
                return await self._machine.in_thread(
                    self._tree.resolve, self._absolute(path), rights=rights
                )

    async def read_file(
        self, path: bytes, offset: int, max_bytes: int, user: str
    ) -> AsyncIterator[bytes]:
        async with self._use.shared():
            rights = self._rights(await self._user_of(user))
            pieces = self._tree.read(self._absolute(path), offset, max_bytes)
            with _denied_to(user):
                async for piece in self._machine.iterated(pieces, rights):
                    yield piece

    async def file_info(self, path: bytes, user: str) -> files_pb2.FileInfo:
        async with self._use.shared():
            rights = self._rights(await self._user_of(user))
            with _denied_to(user):
                return await self._machine.in_thread(
                    self._tree.info, self._absolute(path), rights=rights
                )

    async def write_file(self, file: files_pb2.FileContent, user: str) -> None:
        async with self._use.shared():
            found = await self._user_of(user)
            with _denied_to(user):
                await self._machine.in_thread(
                    self._write, file, Owner(found.uid, found.gid), rights=self._rights(found)
                )

    async def place_file(self, file: files_pb2.FileContent) -> None:
        async with self._use.shared():
            owner = Owner(self._user.uid, self._user.gid)
            await self._machine.in_thread(self._write, file, owner)

    def _write(self, file: files_pb2.FileContent, owner: Owner) -> None:
        self._tree.write(file, self._absolute(file.path), owner)

    async def _user_of(self, name: str) -> ImageUser:
        """The user of a request. Raises FIELD_INVALID, SANDBOX_OPTION_UNSUPPORTED."""
        if name == self.user:
            return self._user
        return await self._machine.in_thread(self._find_user, name)

    def _find_user(self, wanted: str) -> ImageUser:
        passwd = self._tree.read_small(b"/etc/passwd", _SMALL_FILE)
        group = self._tree.read_small(b"/etc/group", _SMALL_FILE)
        user = find_user(wanted, passwd, group)
        if not self._machine.privileged and user.uid != self._user.uid:
            raise option_unsupported("user")
        return user

    def _rights(self, user: ImageUser) -> FileRights | None:
        """The user's rights on this machine; None: root's."""
        if user.uid == 0 or not self._machine.privileged:
            return None
        outside = self._tree.ids.outside
        gids = tuple(map(outside, user.gids))
        return FileRights(outside(user.uid), outside(user.gid), gids)

    async def list_files(
        self, path: bytes, user: str, *, recursive: bool
    ) -> AsyncIterator[files_pb2.FileInfo]:
        async with self._use.shared():
            rights = self._rights(await self._user_of(user))
            files = self._tree.list(self._absolute(path), recursive=recursive)
            with _denied_to(user):
                async for batch in self._machine.batches(files, rights):
                    for file in batch:
                        yield file

    async def read_archive(
        self,
        path: bytes,
        format: files_pb2.ArchiveFormat.ValueType,
        user: str,
        max_bytes: int,
    ) -> AsyncIterator[bytes]:
        async with self._use.shared():
            rights = self._rights(await self._user_of(user))
            pieces = pack(self._tree, self._absolute(path), format, max_bytes)
            with _denied_to(user):
                async for piece in self._machine.iterated(pieces, rights):
                    yield piece

    async def write_archive(
        self,
        path: bytes,
        archive: str,
        format: files_pb2.ArchiveFormat.ValueType,
        user: str,
        max_bytes: int,
    ) -> None:
        async with self._use.shared():
            found = await self._user_of(user)
            owner = Owner(found.uid, found.gid)
            # Opened here: the user has no rights on this machine's own files.
            with await asyncio.to_thread(open, archive, "rb") as packed, _denied_to(user):
                await self._machine.in_thread(
                    unpack,
                    self._tree,
                    self._absolute(path),
                    packed,
                    format,
                    owner,
                    max_bytes,
                    rights=self._rights(found),
                )

    def _absolute(self, path: bytes) -> bytes:
        return path if path.startswith(b"/") else os.fsencode(self.workdir) + b"/" + path


@contextmanager
def _denied_to(user: str) -> Iterator[None]:
    """Names the refused user in SANDBOX_FILE_DENIED."""
    try:
        yield
    except MeshError as error:
        if error.reason != Reason.ERROR_REASON_SANDBOX_FILE_DENIED:
            raise
        raise file_denied(error.metadata["path"].encode(), user) from None
