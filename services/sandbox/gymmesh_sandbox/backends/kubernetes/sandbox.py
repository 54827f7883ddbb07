"""A sandbox that is a pod."""

from __future__ import annotations

import asyncio
import posixpath
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import files_pb2, process_pb2, sandbox_pb2
from gymmesh_runtime.errors import MeshError, field_invalid
from gymmesh_sandbox.backends.base import RunningSandbox, SandboxSpec
from gymmesh_sandbox.backends.image_shell.files import ShellFiles
from gymmesh_sandbox.backends.image_shell.packing import packed, unpacked
from gymmesh_sandbox.backends.image_shell.programs import ScriptFailed
from gymmesh_sandbox.backends.image_shell.shell import HelperShell
from gymmesh_sandbox.backends.image_shell.signals import MARK, Signals, SignalTarget
from gymmesh_sandbox.backends.kubernetes import frames, launch
from gymmesh_sandbox.backends.kubernetes.process import PodProcess
from gymmesh_sandbox.backends.kubernetes.programs import ExecConnection, PodPrograms
from gymmesh_sandbox.errors import image_failed, option_unsupported, sandbox_lost

_START_S: Final = 30.0
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BLOCK: Final = 512
_KIB: Final = 1024


class PodSandbox(RunningSandbox):
    """A pod that runs.

    Args:
        name, uid: the pod's.
        runs: whether the pod is known to run.
        remove: ends the pod.
    """

    def __init__(
        self,
        programs: PodPrograms,
        spec: SandboxSpec,
        *,
        name: str,
        uid: str,
        image: str,
        image_digest: str,
        runs: Callable[[], Awaitable[bool]],
        remove: Callable[[PodSandbox], Awaitable[None]],
    ) -> None:
        self.image = image
        self.image_digest = image_digest
        self.user = ""
        self.workdir = spec.workdir
        self.name = name
        self.uid = uid
        self.sandbox_id = spec.sandbox_id
        self.ended = False
        self._programs = programs
        self._spec = spec
        self._runs = runs
        self._remove = remove
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        # One for what needs builtins only and must work when no process can be started.
        self._control = HelperShell(programs, spec.sandbox_id)
        self._worker = HelperShell(programs, spec.sandbox_id)
        self._trees: dict[int, None] = {}
        self._signals = Signals(self._control, spec.sandbox_id, lambda: self._trees)
        self._processes: set[PodProcess] = set()

    async def prepare(self) -> None:
        """Looks who its processes are, and where. Raises SANDBOX_IMAGE_FAILED."""
        try:
            said = await self._control.run(b"echo $(id -u) $(id -g)")
            uid, gid = said.decode("ascii", "replace").split()
            _, folder, _ = await self._programs.run(("/bin/sh", "-c", "pwd -P"))
        except (ScriptFailed, ValueError):
            raise image_failed(self.image, "it has no 'id' that runs") from None
        self.user, owner = uid, f"{uid}:{gid}"
        found = folder.decode("utf-8", "surrogateescape").removesuffix("\n")
        self.workdir = self.workdir or (found if found.startswith("/") else "/")
        self._files = ShellFiles(self._programs, self.sandbox_id, self._worker, self.workdir, owner)
        if self._spec.workdir:
            await self._files.make_folder(self.workdir.encode())

    async def start(self, process: process_pb2.ProcessSpec) -> PodProcess:
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
        connection = await self._programs.start(
            launch.supervised(word, folder, limits, variables, words)
        )
        try:
            end = frames.EndMark(word)
            async with asyncio.timeout(_START_S):
                (tree, alone), first = await self._first_lines(connection)
                started = await self._signals.started(tree)
        except TimeoutError:
            await connection.close()
            raise sandbox_lost(self.sandbox_id, "it does not start a process") from None
        except BaseException:
            await connection.close()
            raise
        self._trees[tree] = None
        running = PodProcess(
            self.sandbox_id,
            connection,
            first,
            mark=end,
            alone=SignalTarget(alone, mark, started),
            tree=SignalTarget(tree, mark, started),
            signals=self._signals,
            sandbox_runs=self._still_runs,
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
        raise option_unsupported("CallPort", "kubernetes")

    async def snapshot(self, name: str) -> sandbox_pb2.Image:
        raise option_unsupported("SnapshotSandbox", "kubernetes")

    async def end(self) -> None:
        self.ended = True
        try:
            await self._remove(self)
        finally:
            for process in tuple(self._processes):
                await process.give_up()
            await self._control.close()
            await self._worker.close()

    async def _still_runs(self) -> bool:
        return not self.ended and not self._lost.done() and await self._runs()

    async def _first_lines(
        self, connection: ExecConnection
    ) -> tuple[tuple[int, int], list[tuple[int, bytes]]]:
        """The numbers of the shell and of the process, and what was read behind them."""
        said, rest = b"", list[tuple[int, bytes]]()
        while said.count(b"\n") < 2:
            read = await connection.read()
            if read is None:
                raise MeshError(
                    errors_pb2.ERROR_REASON_INTERNAL_FAULT,
                    "The sandbox does not start a process: its shell ended before.",
                    metadata={"sandbox_id": self.sandbox_id},
                )
            if read[0] == frames.STDOUT:
                said += read[1]
            else:
                rest.append(read)
        tree, alone, behind = said.split(b"\n", 2)
        if not (tree.isdigit() and alone.isdigit()):
            raise image_failed(self.image, "its /bin/sh writes what it was not told to")
        return (int(tree), int(alone)), [*([(frames.STDOUT, behind)] if behind else ()), *rest]
