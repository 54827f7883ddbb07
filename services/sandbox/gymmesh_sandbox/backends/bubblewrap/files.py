"""The files of a sandbox of bubblewrap, as its service reads and writes them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

from gymmesh.sandbox.v1 import files_pb2
from gymmesh_sandbox.backends.base import RunningSandbox
from gymmesh_sandbox.backends.bubblewrap.archives import pack, unpack
from gymmesh_sandbox.backends.bubblewrap.errors import option_unsupported
from gymmesh_sandbox.backends.bubblewrap.machine import Machine
from gymmesh_sandbox.backends.bubblewrap.shared_use import SharedUse
from gymmesh_sandbox.backends.bubblewrap.tree import Owner, SandboxTree
from gymmesh_sandbox.backends.bubblewrap.users import ImageUser, find_user

_SMALL_FILE = 1 << 20


class BoxFiles(RunningSandbox):
    """The part of RunningSandbox that is about files. `tree` is the sandbox's file system.

    Args:
        user: whose files are when a request does not say.
        workdir: what relative paths begin at.
    """

    def __init__(self, machine: Machine, user: ImageUser, workdir: str) -> None:
        self.user = user.name
        self.workdir = workdir
        self._machine = machine
        self._user = user
        self._use = SharedUse()
        self._tree = SandboxTree(-1, machine.ids(user.uid), owns=machine.privileged)

    async def resolve(self, path: bytes) -> bytes:
        async with self._use.shared():
            return await self._machine.in_thread(self._tree.resolve, self._absolute(path))

    async def read_file(self, path: bytes, offset: int, max_bytes: int) -> AsyncIterator[bytes]:
        async with self._use.shared():
            pieces = self._tree.read(self._absolute(path), offset, max_bytes)
            async for piece in self._machine.iterated(pieces):
                yield piece

    async def file_info(self, path: bytes) -> files_pb2.FileInfo:
        async with self._use.shared():
            return await self._machine.in_thread(self._tree.info, self._absolute(path))

    async def write_file(self, file: files_pb2.FileContent, user: str) -> None:
        async with self._use.shared():
            await self._machine.in_thread(self._write, file, user)

    def _write(self, file: files_pb2.FileContent, user: str) -> None:
        self._tree.write(file, self._absolute(file.path), self._owner(user))

    def _owner(self, user: str) -> Owner:
        found = self._find_user(user) if user else self._user
        return Owner(found.uid, found.gid)

    def _find_user(self, wanted: str) -> ImageUser:
        passwd = self._tree.read_small(b"/etc/passwd", _SMALL_FILE)
        group = self._tree.read_small(b"/etc/group", _SMALL_FILE)
        user = find_user(wanted, passwd, group)
        if not self._machine.privileged and user.uid != self._user.uid:
            raise option_unsupported("user")
        return user

    async def list_files(
        self, path: bytes, *, recursive: bool
    ) -> AsyncIterator[files_pb2.FileInfo]:
        async with self._use.shared():
            files = self._tree.list(self._absolute(path), recursive=recursive)
            async for batch in self._machine.batches(files):
                for file in batch:
                    yield file

    async def read_archive(
        self, path: bytes, format: files_pb2.ArchiveFormat.ValueType
    ) -> AsyncIterator[bytes]:
        async with self._use.shared():
            pieces = pack(self._tree, self._absolute(path), format)
            async for piece in self._machine.iterated(pieces):
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
            await self._machine.in_thread(self._unpack, path, archive, format, user, max_bytes)

    def _unpack(
        self,
        path: bytes,
        archive: str,
        format: files_pb2.ArchiveFormat.ValueType,
        user: str,
        max_bytes: int,
    ) -> None:
        owner = self._owner(user)
        unpack(self._tree, self._absolute(path), archive, format, owner, max_bytes)

    def _absolute(self, path: bytes) -> bytes:
        return path if path.startswith(b"/") else os.fsencode(self.workdir) + b"/" + path
