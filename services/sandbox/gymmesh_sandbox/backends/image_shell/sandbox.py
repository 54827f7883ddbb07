"""A sandbox of a backend that can start programs in it, and no more."""

from __future__ import annotations

import asyncio
import posixpath
import re
import secrets
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import files_pb2, process_pb2, sandbox_pb2
from gymmesh_runtime.errors import MeshError, field_invalid
from gymmesh_sandbox.backends.base import RunningSandbox, SandboxSpec, Stream
from gymmesh_sandbox.backends.image_shell import launch
from gymmesh_sandbox.backends.image_shell.end_mark import EndMark
from gymmesh_sandbox.backends.image_shell.files import ShellFiles
from gymmesh_sandbox.backends.image_shell.own_programs import OwnPrograms
from gymmesh_sandbox.backends.image_shell.packing import packed, unpacked
from gymmesh_sandbox.backends.image_shell.process import ShellProcess
from gymmesh_sandbox.backends.image_shell.programs import ScriptFailed, StartedProgram
from gymmesh_sandbox.backends.image_shell.shell import HelperShell
from gymmesh_sandbox.backends.image_shell.signals import MARK, Signals, SignalTarget
from gymmesh_sandbox.errors import image_failed, option_unsupported, sandbox_lost

_START_S: Final = 30.0
# The exit code of a shell for a program that the kernel does not take.
_NOT_RUN: Final = 126
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BLOCK: Final = 512
_KIB: Final = 1024


class ShellSandbox(RunningSandbox):
    """A sandbox whose programs, files and signals go through the shell of its own image.

    A backend says how a program starts, whether the sandbox runs, and how it is removed, and calls
    `prepare` once it runs. Its processes have one user; `Capabilities.users` is not for it.

    Args:
        backend: the backend's name, for errors.
    """

    def __init__(self, spec: SandboxSpec, *, backend: str, image: str, image_digest: str) -> None:
        self.image = image
        self.image_digest = image_digest
        self.user = ""
        self.workdir = spec.workdir
        self.sandbox_id = spec.sandbox_id
        self.ended = False
        self._backend = backend
        self._spec = spec
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._programs = OwnPrograms(self.start_program, spec.sandbox_id)
        # One for what needs builtins only and must work when no process can be started.
        self._control = HelperShell(self._programs, spec.sandbox_id)
        self._worker = HelperShell(self._programs, spec.sandbox_id)
        self._trees: dict[int, None] = {}
        self._signals = Signals(self._control, spec.sandbox_id, lambda: self._trees)
        self._processes: set[ShellProcess] = set()

    @abstractmethod
    async def start_program(self, argv: Sequence[str]) -> StartedProgram:
        """Starts a program as the sandbox's user, its input and output connected.

        Raises MeshError, and OSError where the sandbox cannot be reached.
        """

    @abstractmethod
    async def still_runs(self) -> bool:
        """Whether it is known to run; asked where a process was killed, nobody knows by whom."""

    @abstractmethod
    async def remove(self) -> None:
        """Ends it, with all processes; returns once nothing of it is left. Called once or more."""

    async def prepare(self) -> None:
        """Finds out as whom its processes run, and where. Raises SANDBOX_IMAGE_FAILED."""
        try:
            said = await self._control.run(b"echo $(id -u) $(id -g)")
            uid, gid = said.decode("ascii", "replace").split()
            _, folder, _ = await self._programs.run(("/bin/sh", "-c", "pwd -P"))
        except (ScriptFailed, ValueError):
            raise image_failed(self.image, "it has no 'id' that runs") from None
        self.user, user = uid, f"{uid}:{gid}"
        found = folder.decode("utf-8", "surrogateescape").removesuffix("\n")
        self.workdir = self.workdir or (found if found.startswith("/") else "/")
        self._files = ShellFiles(self._programs, self.sandbox_id, self._worker, self.workdir, user)
        if self._spec.workdir:
            await self._files.make_folder(self.workdir.encode())

    async def start(self, process: process_pb2.ProcessSpec) -> ShellProcess:
        mark = secrets.token_hex(12)
        word = secrets.token_hex(16).encode()
        variables = {**self._spec.env, **process.env, MARK: mark}
        for name in variables:
            if not _NAME.fullmatch(name):
                raise field_invalid("process.env", f"has {name!r}, which no shell can export")
        words = list(process.argv.words)
        if process.WhichOneof("command") == "shell":
            words = [b"/bin/sh", b"-c", process.shell.encode()]
        limits = (
            process.cpu_s,
            -(-process.file_bytes // _BLOCK),
            -(-process.address_space_bytes // _KIB),
            process.open_files,
        )
        folder = posixpath.join(self.workdir, process.cwd).encode("utf-8", "surrogateescape")
        program = await self._programs.start(
            launch.supervised(word, folder, limits, variables, words)
        )
        try:
            end = EndMark(word)
            async with asyncio.timeout(_START_S):
                (tree, alone), first = await self._first_lines(program, end)
                started = await self._signals.started(tree)
        except TimeoutError:
            await program.close()
            raise sandbox_lost(self.sandbox_id, "it does not start a process") from None
        except BaseException:
            await program.close()
            raise
        self._trees[tree] = None
        running = ShellProcess(
            self.sandbox_id,
            program,
            first,
            mark=end,
            alone=SignalTarget(alone, mark, started),
            tree=SignalTarget(tree, mark, started),
            signals=self._signals,
            sandbox_runs=self._runs,
            on_end=self._processes.discard,
        )
        self._processes.add(running)
        return running

    async def wait_lost(self) -> str:
        return await asyncio.shield(self._lost)

    def lose(self, cause: str) -> None:
        """It ended without `end`."""
        if not self._lost.done() and not self.ended:
            self._lost.set_result(cause)

    async def resolve(self, path: bytes, user: str) -> bytes:
        return await self._files.resolve(path)

    async def read_file(
        self, path: bytes, offset: int, max_bytes: int, user: str
    ) -> AsyncIterator[bytes]:
        async for piece in self._files.read(path, offset, max_bytes):
            yield piece

    async def file_info(self, path: bytes, user: str) -> files_pb2.FileInfo:
        return await self._files.info(path)

    async def write_file(self, file: files_pb2.FileContent, user: str) -> None:
        await self._files.write(file)

    async def place_file(self, file: files_pb2.FileContent) -> None:
        await self._files.write(file)

    async def list_files(
        self, path: bytes, user: str, *, recursive: bool
    ) -> AsyncIterator[files_pb2.FileInfo]:
        async for info in self._files.listed(path, recursive=recursive):
            yield info

    async def read_archive(
        self,
        path: bytes,
        format: files_pb2.ArchiveFormat.ValueType,
        user: str,
        max_bytes: int,
    ) -> AsyncIterator[bytes]:
        async for piece in packed(self._files, self._programs, path, format, max_bytes):
            yield piece

    async def write_archive(
        self,
        path: bytes,
        archive: str,
        format: files_pb2.ArchiveFormat.ValueType,
        user: str,
        max_bytes: int,
    ) -> None:
        await unpacked(self._files, self._programs, path, archive, format, max_bytes)

    async def call_port(
        self, request: sandbox_pb2.CallPortRequest, max_bytes: int
    ) -> sandbox_pb2.CallPortResponse:
        raise option_unsupported("CallPort", self._backend)

    async def snapshot(self, name: str) -> sandbox_pb2.Image:
        raise option_unsupported("SnapshotSandbox", self._backend)

    async def end(self) -> None:
        self.ended = True
        try:
            await self.remove()
        finally:
            for process in tuple(self._processes):
                await process.give_up()
            await self._control.close()
            await self._worker.close()

    async def _runs(self) -> bool:
        return not self.ended and not self._lost.done() and await self.still_runs()

    async def _first_lines(
        self, program: StartedProgram, end: EndMark
    ) -> tuple[tuple[int, int], list[tuple[Stream, bytes]]]:
        """The numbers of the shell and of the process, and what was read behind them."""
        said, rest = b"", list[tuple[Stream, bytes]]()
        while said.count(b"\n") < 2:
            read = await program.read()
            if read is None:
                for stream, piece in rest:
                    if stream is Stream.STDERR:
                        end.take(piece)
                if end.numbers is not None and end.numbers[0] == _NOT_RUN:
                    raise field_invalid("process", "has more words and variables than can be run")
                raise MeshError(
                    errors_pb2.ERROR_REASON_INTERNAL_FAULT,
                    "The sandbox does not start a process: its shell ended before.",
                    metadata={"sandbox_id": self.sandbox_id},
                )
            if read[0] is Stream.STDOUT:
                said += read[1]
            else:
                rest.append(read)
        tree, alone, behind = said.split(b"\n", 2)
        if not (tree.isdigit() and alone.isdigit()):
            raise image_failed(self.image, "its /bin/sh writes what it was not told to")
        return (int(tree), int(alone)), [*([(Stream.STDOUT, behind)] if behind else ()), *rest]
