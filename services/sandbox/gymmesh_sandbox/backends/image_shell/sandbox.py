"""A sandbox of a backend that can only start programs in it."""

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
from gymmesh_sandbox.backends.base import SandboxSpec, Stream
from gymmesh_sandbox.backends.image_shell import launch
from gymmesh_sandbox.backends.image_shell.end_mark import EndMark
from gymmesh_sandbox.backends.image_shell.files import ShellFiles
from gymmesh_sandbox.backends.image_shell.helper_sandbox import (
    HelperSandbox,
    limits_of,
    words_of,
)
from gymmesh_sandbox.backends.image_shell.own_programs import OwnPrograms
from gymmesh_sandbox.backends.image_shell.packing import packed, unpacked
from gymmesh_sandbox.backends.image_shell.process import ShellProcess
from gymmesh_sandbox.backends.image_shell.programs import ScriptFailed, StartedProgram
from gymmesh_sandbox.backends.image_shell.signals import MARK, SignalTarget
from gymmesh_sandbox.errors import image_failed, option_unsupported, sandbox_lost

_START_S: Final = 30.0
# The exit code of a shell for a program that the kernel does not take.
_NOT_RUN: Final = 126
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ShellSandbox(HelperSandbox[ShellProcess]):
    """A sandbox whose programs, files and signals use the shell of its own image.

    A backend implements how a program starts, whether the sandbox runs, and how the sandbox is
    removed. It calls `prepare` when the sandbox runs. All processes have one user, so the backend's
    capabilities must not have `users`.

    Args:
        backend: the backend's name, for errors.
    """

    def __init__(self, spec: SandboxSpec, *, backend: str, image: str, image_digest: str) -> None:
        self._programs = OwnPrograms(self.start_program, spec.sandbox_id)
        super().__init__(
            spec,
            self._programs,
            image=image,
            image_digest=image_digest,
            user="",
            workdir=spec.workdir,
        )
        self._backend = backend

    @abstractmethod
    async def start_program(self, argv: Sequence[str]) -> StartedProgram:
        """Starts a program as the sandbox's user, with its input and output connected.

        Raises MeshError, and OSError if the sandbox cannot be reached.
        """

    @abstractmethod
    async def still_runs(self) -> bool:
        """Whether the sandbox is known to run. Called after a process was killed by an unknown
        sender.
        """

    async def prepare(self) -> None:
        """Finds the user and the working folder of the sandbox's processes. Raises
        SANDBOX_IMAGE_FAILED.
        """
        try:
            said = await self._control.run(b"echo $(id -u) $(id -g)")
            uid, gid = said.decode("ascii", "replace").split()
            _, folder, _ = await self._programs.run(("/bin/sh", "-c", "pwd -P"))
        except (ScriptFailed, ValueError):
            raise image_failed(self.image, "the image has no working command 'id'") from None
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
                raise field_invalid(
                    "process.env", f"has the name {name!r}, which no shell can export"
                )
        folder = posixpath.join(self.workdir, process.cwd).encode("utf-8", "surrogateescape")
        program = await self._programs.start(
            launch.supervised(word, folder, limits_of(process), variables, words_of(process))
        )
        try:
            end = EndMark(word)
            async with asyncio.timeout(_START_S):
                (tree, alone), first = await self._first_lines(program, end)
                started = await self._signals.started(tree)
        except TimeoutError:
            await program.close()
            raise sandbox_lost(
                self.sandbox_id, "the sandbox did not start a process in time"
            ) from None
        except BaseException:
            await program.close()
            raise
        self._started[tree] = None
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

    async def files_of(self, user: str) -> ShellFiles:
        return self._files

    async def place_file(self, file: files_pb2.FileContent) -> None:
        await self._files.write(file)

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

    async def _runs(self) -> bool:
        return not self.ended and not self._lost.done() and await self.still_runs()

    async def _first_lines(
        self, program: StartedProgram, end: EndMark
    ) -> tuple[tuple[int, int], list[tuple[Stream, bytes]]]:
        """The numbers of the shell and of the process, and the output that was read after them."""
        said, rest = b"", list[tuple[Stream, bytes]]()
        while said.count(b"\n") < 2:
            read = await program.read()
            if read is None:
                for stream, piece in rest:
                    if stream is Stream.STDERR:
                        end.take(piece)
                if end.numbers is not None and end.numbers[0] == _NOT_RUN:
                    raise field_invalid(
                        "process", "has more arguments and variables than the system allows"
                    )
                raise MeshError(
                    errors_pb2.ERROR_REASON_INTERNAL_FAULT,
                    "The sandbox cannot start a process: the sandbox's shell has ended.",
                    metadata={"sandbox_id": self.sandbox_id},
                )
            if read[0] is Stream.STDOUT:
                said += read[1]
            else:
                rest.append(read)
        tree, alone, behind = said.split(b"\n", 2)
        if not (tree.isdigit() and alone.isdigit()):
            raise image_failed(self.image, "the image's /bin/sh writes unexpected output")
        return (int(tree), int(alone)), [*([(Stream.STDOUT, behind)] if behind else ()), *rest]
