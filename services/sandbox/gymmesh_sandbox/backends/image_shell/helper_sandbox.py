"""A sandbox whose files and signals use helper shells of its own image."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Final, Generic, Protocol, TypeVar

from gymmesh.sandbox.v1 import files_pb2, process_pb2
from gymmesh_sandbox.backends.base import RunningSandbox, SandboxSpec
from gymmesh_sandbox.backends.image_shell.files import ShellFiles
from gymmesh_sandbox.backends.image_shell.programs import Programs
from gymmesh_sandbox.backends.image_shell.shell import HelperShell
from gymmesh_sandbox.backends.image_shell.signals import Signals

_BLOCK: Final = 512
_KIB: Final = 1024


class SandboxedProcess(Protocol):
    """A process that ends with its sandbox."""

    async def give_up(self) -> None:
        """The sandbox has ended."""


_Process = TypeVar("_Process", bound=SandboxedProcess)


class HelperSandbox(RunningSandbox, Generic[_Process]):
    """The common part of sandboxes whose backend can start programs in them: one shell for signals,
    one for files, and the end of both.

    Args:
        programs: starts the shells.
        user, workdir: the defaults in force; empty: known after the sandbox is prepared.
    """

    def __init__(
        self,
        spec: SandboxSpec,
        programs: Programs,
        *,
        image: str,
        image_digest: str,
        user: str,
        workdir: str,
    ) -> None:
        self.image = image
        self.image_digest = image_digest
        self.user = user
        self.workdir = workdir
        self.sandbox_id = spec.sandbox_id
        self.ended = False
        self._spec = spec
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        # One for what needs builtins only and must work when no process can be started.
        self._control = HelperShell(programs, spec.sandbox_id)
        self._worker = HelperShell(programs, spec.sandbox_id)
        self._started: dict[int, None] = {}  # the numbers of all processes that were started
        self._signals = Signals(self._control, spec.sandbox_id, lambda: self._started)
        self._processes: set[_Process] = set()

    @abstractmethod
    async def files_of(self, user: str) -> ShellFiles:
        """The files, with a user's rights. Raises FIELD_INVALID for a user that does not exist."""

    @abstractmethod
    async def remove(self) -> None:
        """Ends the sandbox and all its processes; returns when nothing is left. May be called
        several times.
        """

    async def close_helpers(self) -> None:
        """Ends what was opened in addition to the two shells."""

    async def wait_lost(self) -> str:
        return await asyncio.shield(self._lost)

    def lose(self, cause: str) -> None:
        """The sandbox ended without `end`."""
        if not self._lost.done() and not self.ended:
            self._lost.set_result(cause)

    async def resolve(self, path: bytes, user: str) -> bytes:
        return await (await self.files_of(user)).resolve(path)

    async def read_file(
        self, path: bytes, offset: int, max_bytes: int, user: str
    ) -> AsyncIterator[bytes]:
        async for piece in (await self.files_of(user)).read(path, offset, max_bytes):
            yield piece

    async def file_info(self, path: bytes, user: str) -> files_pb2.FileInfo:
        return await (await self.files_of(user)).info(path)

    async def write_file(self, file: files_pb2.FileContent, user: str) -> None:
        await (await self.files_of(user)).write(file)

    async def list_files(
        self, path: bytes, user: str, *, recursive: bool
    ) -> AsyncIterator[files_pb2.FileInfo]:
        async for info in (await self.files_of(user)).listed(path, recursive=recursive):
            yield info

    async def end(self) -> None:
        self.ended = True
        try:
            await self.remove()
        finally:
            for process in tuple(self._processes):
                await process.give_up()
            await self._control.close()
            await self._worker.close()
            await self.close_helpers()


def words_of(process: process_pb2.ProcessSpec) -> list[bytes]:
    """The program and its arguments; for a line, the shell and the line."""
    if process.WhichOneof("command") == "shell":
        return [b"/bin/sh", b"-c", process.shell.encode()]
    return list(process.argv.words)


def limits_of(process: process_pb2.ProcessSpec) -> tuple[int, int, int, int]:
    """The limits of one process, as `ulimit` counts them: seconds, blocks, KiB, files."""
    return (
        process.cpu_s,
        -(-process.file_bytes // _BLOCK),
        -(-process.address_space_bytes // _KIB),
        process.open_files,
    )
