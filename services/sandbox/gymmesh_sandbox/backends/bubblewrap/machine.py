"""What all sandboxes of a backend share on this machine."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from gymmesh_sandbox.backends.bubblewrap.rights import FileRights, act_with
from gymmesh_sandbox.backends.bubblewrap.tree import IdMap
from gymmesh_sandbox_local import Starter

# The ids of sandboxes when the service is root: far from those of people and services. All
# sandboxes have the same, since they share files; each has a user namespace of its own.
_FIRST_ID = 0x70010000
_ID_COUNT = 65_536
#: The rights of the sandboxes' root, on the file systems of sandboxes.
_ROOT = FileRights(_FIRST_ID, _FIRST_ID, (_FIRST_ID,), all=True)
_FILE_THREADS = 8
_BATCH = 256
_T = TypeVar("_T")
_ResultT = TypeVar("_ResultT")


class Machine:
    """What sandboxes are created with.

    Attributes:
        bwrap: the path of bubblewrap.
        filter: the filter of system calls.
        first_process: a memory file with the program that is every sandbox's first process.
        privileged: whether this process is root, so that sandboxes have many users.
        starter: starts sandboxes and processes.
        grouped: whether control groups can be used.
        yields: whether sandboxes get half the usual CPU share.
    """

    def __init__(
        self,
        *,
        bwrap: str,
        filter: bytes,
        first_process: int,
        starter: Starter,
        grouped: bool,
        yields: bool,
    ) -> None:
        self.bwrap = bwrap
        self.filter = filter
        self.first_process = first_process
        self.starter = starter
        self.grouped = grouped
        self.yields = yields
        self.privileged = os.geteuid() == 0
        self._pool = ThreadPoolExecutor(_FILE_THREADS, "sandbox-files")

    @property
    def root_id(self) -> int:
        """This machine's id of the sandboxes' root, or of their only user."""
        return _FIRST_ID if self.privileged else os.geteuid()

    def ids(self, uid: int) -> IdMap:
        """The ids of a sandbox whose own user is `uid`."""
        if self.privileged:
            return IdMap(_FIRST_ID, 0, _ID_COUNT)
        return IdMap(os.geteuid(), uid, 1)

    @property
    def id_map(self) -> bytes:
        """The map that the spawner writes; empty if bubblewrap creates the user namespace."""
        return b"0 %d %d" % (_FIRST_ID, _ID_COUNT) if self.privileged else b""

    async def in_thread(
        self,
        function: Callable[..., _ResultT],
        *arguments: object,
        rights: FileRights | None = None,
    ) -> _ResultT:
        """Runs a function that uses a sandbox's files, with a user's rights; None: with those of
        its root.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._pool, self._with_rights, rights or _ROOT, function, *arguments
        )

    def _with_rights(
        self, rights: FileRights, function: Callable[..., _ResultT], *arguments: object
    ) -> _ResultT:
        if self.privileged:
            act_with(rights)
        return function(*arguments)

    async def iterated(
        self, pieces: Iterator[_T], rights: FileRights | None = None
    ) -> AsyncIterator[_T]:
        """The results of an iterator of large pieces."""
        async for batch in self.batches(pieces, rights, 1):
            for piece in batch:
                yield piece

    async def batches(
        self, pieces: Iterator[_T], rights: FileRights | None = None, size: int = _BATCH
    ) -> AsyncIterator[list[_T]]:
        """The results of an iterator of small values, several at a time."""
        while batch := await self.in_thread(_some, pieces, size, rights=rights):
            yield batch

    def close(self) -> None:
        """Closes everything that is open; may be called twice."""
        self._pool.shutdown(wait=False)
        if self.first_process >= 0:
            os.close(self.first_process)
            self.first_process = -1


def _some(pieces: Iterator[_T], size: int) -> list[_T]:
    return list(itertools.islice(pieces, size))
