"""A sandbox that is a container."""

from __future__ import annotations

import asyncio
import posixpath
import secrets
import shlex
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import IO, Final

from aiodocker.containers import DockerContainer
from aiodocker.exceptions import DockerError
from aiodocker.execs import Exec
from aiodocker.stream import Message
from aiodocker.stream import Stream as ExecStream

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import files_pb2, process_pb2, sandbox_pb2
from gymmesh_runtime.errors import MeshError, field_invalid
from gymmesh_sandbox.backends.base import SandboxSpec
from gymmesh_sandbox.backends.docker.engine import FAILURES, DockerEngine, container_error, one_line
from gymmesh_sandbox.backends.docker.ports import call_port
from gymmesh_sandbox.backends.docker.process import DockerProcess, StandardInput
from gymmesh_sandbox.backends.docker.relay import ContainerRelay
from gymmesh_sandbox.backends.docker.shell import ContainerPrograms, close_stream, exit_code
from gymmesh_sandbox.backends.image_shell import archives, scripts
from gymmesh_sandbox.backends.image_shell.files import ShellFiles
from gymmesh_sandbox.backends.image_shell.helper_sandbox import (
    HelperSandbox,
    limits_of,
    words_of,
)
from gymmesh_sandbox.backends.image_shell.packing import checked_folder, packed, unpacked
from gymmesh_sandbox.backends.image_shell.programs import ScriptFailed
from gymmesh_sandbox.backends.image_shell.shell import HelperShell
from gymmesh_sandbox.backends.image_shell.signals import MARK, SignalTarget
from gymmesh_sandbox.backends.image_shell.transfer import transformed

_STDOUT: Final = 1
_PIECE_BYTES: Final = 1 << 18
_MOST_SHELLS: Final = 4  # of users: what they cost is a process in the container each
_PIPES: Final = "/dev/shm/.gymmesh-"
_NO_SHELL: Final = (126, 127)  # exit codes of a container whose /bin/sh does not run
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class DockerSandbox(HelperSandbox[DockerProcess]):
    """A container that was started.

    Args:
        user, workdir: the defaults in force.
        keep: creates an image from the container, with the snapshot's name.
        remove: removes the container.
    """

    def __init__(
        self,
        engine: DockerEngine,
        container: DockerContainer,
        spec: SandboxSpec,
        *,
        image: str,
        image_digest: str,
        user: str,
        workdir: str,
        relay: ContainerRelay | None,
        keep: Callable[[DockerSandbox, str], Awaitable[sandbox_pb2.Image]],
        remove: Callable[[DockerSandbox], Awaitable[None]],
    ) -> None:
        programs = ContainerPrograms(container, spec.sandbox_id)
        super().__init__(
            spec, programs, image=image, image_digest=image_digest, user=user, workdir=workdir
        )
        self.container = container
        self._engine = engine
        self._relay = relay
        self._keep = keep
        self._remove = remove
        self._files = ShellFiles(programs, spec.sandbox_id, self._worker, workdir)
        self._by_user: dict[str, tuple[ShellFiles, HelperShell]] = {}
        self._pipes = _PIPES + secrets.token_hex(8)

    async def prepare(self) -> None:
        """Starts what the sandbox needs inside. Raises SANDBOX_IMAGE_FAILED and SANDBOX_LOST."""
        try:
            await self._control.run(b":")
        except MeshError:
            if not await self._lacks_shell():
                raise
            raise MeshError(
                errors_pb2.ERROR_REASON_SANDBOX_IMAGE_FAILED,
                f"The image '{self.image}' has no working /bin/sh, which this backend needs.",
                metadata={"image": self.image, "cause": "no /bin/sh"},
            ) from None
        await self._files.owner(self.user)
        if self.workdir != "/":
            await self._files.make_folder(self.workdir.encode(), self.user)

    async def start(self, process: process_pb2.ProcessSpec) -> DockerProcess:
        mark, path = secrets.token_hex(12), f"{self._pipes}/{secrets.token_hex(12)}"
        # A name in /etc/passwd of the container, or a number: the daemon looks it up.
        user = process.user or self.user
        holder, killed = await self._open_pipe(path)
        stdin = StandardInput(
            self.container, path, holder, lambda pids: self._close_pipe(path, pids)
        )
        stream: ExecStream | None = None
        try:
            await self._files.owner(user)
            found = await self.container.exec(
                scripts.command(scripts.START, self._arguments(process, path)),
                user=user,
                environment={"PATH": _PATH, **self._spec.env, **process.env, MARK: mark},
                workdir="/",
            )
            stream = found.start()
            await stream.__aenter__()
            pid, first = await self._first_line(found, stream, user)
            started = await self._signals.started(pid)
        except BaseException as error:
            await stdin.drop()
            if stream is not None:
                await close_stream(stream)
            if isinstance(error, FAILURES):
                raise self._failed(error, user) from None
            raise
        self._started[pid] = None
        running = DockerProcess(
            self.sandbox_id,
            found,
            stream,
            first,
            target=SignalTarget(pid, mark, started),
            stdin=stdin,
            signals=self._signals,
            out_of_memory=lambda: self._killed_since(killed),
            sandbox_ended=self._container_ended,
            on_end=self._processes.discard,
        )
        self._processes.add(running)
        return running

    async def place_file(self, file: files_pb2.FileContent) -> None:
        await self._files.write(file, self.user)

    async def read_archive(
        self,
        path: bytes,
        format: files_pb2.ArchiveFormat.ValueType,
        user: str,
        max_bytes: int,
    ) -> AsyncIterator[bytes]:
        files = await self.files_of(user)
        if files is not self._files:
            async for piece in packed(files, self._programs_of(user), path, format, max_bytes):
                yield piece
            return
        real = await files.resolve(path)
        info = await files.info(real)
        await files.check_size(real, max_bytes)
        is_folder = info.kind == files_pb2.FILE_KIND_FOLDER
        top = posixpath.basename(real).decode("utf-8", "surrogateescape") if is_folder else ""

        def work(source: IO[bytes], written: IO[bytes]) -> None:
            with (
                archives.open_archive(source, "r|") as sent,
                archives.open_archive(written, f"w|{archives.COMPRESSION[format]}") as target,
            ):
                archives.relative(sent, target, top)

        async for piece in transformed(self._sent(real), work):
            yield piece

    async def write_archive(
        self,
        path: bytes,
        archive: str,
        format: files_pb2.ArchiveFormat.ValueType,
        user: str,
        max_bytes: int,
    ) -> None:
        files = await self.files_of(user)
        if files is not self._files:
            programs = self._programs_of(user)
            await unpacked(files, programs, path, archive, format, max_bytes)
            return
        real = await checked_folder(files, path, archive, format, max_bytes)
        mode = f"r|{archives.COMPRESSION[format]}"
        with tempfile.TemporaryFile() as spool:
            await asyncio.to_thread(archives.owned_file, archive, mode, spool, 0, 0)
            try:
                async with self._engine.request(
                    "PUT",
                    f"containers/{self.container.id}/archive",
                    {"path": real, "noOverwriteDirNonDir": "0"},
                    data=spool,
                ):
                    pass
            except FAILURES as error:
                if "no space left" in str(error):
                    raise self._files.disk_full() from None
                raise container_error(error, self.sandbox_id) from None

    async def files_of(self, user: str) -> ShellFiles:
        if (await self._files.owner(user)).partition(":")[0] == "0":
            return self._files
        known = self._by_user.pop(user, None)
        if known is None:
            shell = HelperShell(self._programs_of(user), self.sandbox_id)
            files = ShellFiles(self._programs_of(user), self.sandbox_id, shell, self.workdir, user)
            known = files, shell
        self._by_user[user] = known  # the last used are kept
        if len(self._by_user) > _MOST_SHELLS:
            oldest = next(iter(self._by_user))
            await self._by_user.pop(oldest)[1].close()
        return known[0]

    def _programs_of(self, user: str) -> ContainerPrograms:
        return ContainerPrograms(self.container, self.sandbox_id, user)

    async def call_port(
        self, request: sandbox_pb2.CallPortRequest, max_bytes: int
    ) -> sandbox_pb2.CallPortResponse:
        return await call_port(self.container, self.sandbox_id, request, max_bytes)

    async def snapshot(self, name: str) -> sandbox_pb2.Image:
        return await self._keep(self, name)

    async def remove(self) -> None:
        await self._remove(self)

    async def close_helpers(self) -> None:
        for _, shell in self._by_user.values():
            await shell.close()
        if self._relay is not None:
            await self._relay.close()

    def _arguments(self, process: process_pb2.ProcessSpec, pipe: str) -> list[bytes]:
        folder = posixpath.join(self.workdir, process.cwd)
        limits = (b"%d" % one for one in limits_of(process))
        return [pipe.encode(), folder.encode(), *limits, *words_of(process)]

    async def _first_line(
        self, found: Exec, stream: ExecStream, user: str
    ) -> tuple[int, list[Message]]:
        """The process id, which the process writes first, and the output after it."""
        said, rest = b"", list[Message]()
        while b"\n" not in said:
            message = await stream.read_out()
            if message is None:
                code = await exit_code(found)
                words = said + b"".join(one.data for one in rest)
                raise DockerError(code, words.decode("utf-8", "replace"))
            if message.stream == _STDOUT:
                said += message.data
            else:
                rest.append(message)
        line, _, behind = said.partition(b"\n")
        if not line.isdigit():
            raise DockerError(0, said.decode("utf-8", "replace"))
        return int(line), [*([Message(_STDOUT, behind)] if behind else ()), *rest]

    def _failed(self, error: Exception, user: str) -> MeshError:
        words = str(error)
        if "unable to find user" in words or "no matching entries in passwd" in words:
            return field_invalid("process.user", f"is '{user}', but the sandbox has no such user")
        refused = ("resource temporarily unavailable", "argument list too long")
        if isinstance(error, DockerError) and any(one in words.lower() for one in refused):
            return field_invalid("process", f"could not be started: {one_line(words)}")
        return container_error(error, self.sandbox_id)

    async def _open_pipe(self, path: str) -> tuple[int, int]:
        script = f"{scripts.OPEN_PIPE}\npipe {shlex.quote(path)} || return 1 2>/dev/null || false"
        try:
            said = await self._worker.run(f"{script}\n{scripts.COUNT_OOM}\n:".encode())
        except ScriptFailed:
            said = b""
        numbers = said.split()
        if not numbers:
            raise MeshError(
                errors_pb2.ERROR_REASON_INTERNAL_FAULT,
                "The sandbox cannot start a process: mkfifo failed in the sandbox.",
                metadata={"sandbox_id": self.sandbox_id},
            )
        return int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0

    async def _close_pipe(self, path: str, pids: Sequence[int]) -> None:
        word, listed = shlex.quote(path), " ".join(map(str, pids))
        await self._worker.run(f"kill -9 {listed}; rm -f {word} {word}.hold; :".encode())

    async def _lacks_shell(self) -> bool:
        """Whether the container ended because its image has no working shell. Its first process
        is a shell, so a running container has one.
        """
        try:
            state = (await self.container.show())["State"]
        except FAILURES:
            return False
        return not state["Running"] and state.get("ExitCode") in _NO_SHELL

    async def _container_ended(self) -> bool:
        if self.ended or self._lost.done():
            return True
        try:
            return not (await self.container.show())["State"]["Running"]
        except DockerError:
            return True

    async def _killed_since(self, before: int) -> bool:
        try:
            said = (await self._control.run(f"{scripts.COUNT_OOM}\n:".encode())).split()
        except (MeshError, ScriptFailed):
            return False
        return bool(said) and int(said[0]) > before

    async def _sent(self, path: bytes) -> AsyncIterator[bytes]:
        try:
            async with self._engine.request(
                "GET", f"containers/{self.container.id}/archive", {"path": path}
            ) as response:
                async for piece in response.content.iter_chunked(_PIECE_BYTES):
                    yield piece
        except FAILURES as error:
            raise container_error(error, self.sandbox_id) from None
