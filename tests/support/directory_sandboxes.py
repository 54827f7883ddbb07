"""A backend of the sandbox service for tests: folders, and plain processes that start in them.

Processes, pipes and files are real; nothing keeps a process in its folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shutil
import signal as signals
import tarfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import files_pb2, process_pb2, sandbox_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends import (
    ProcessEnded,
    RunningProcess,
    RunningSandbox,
    SandboxBackend,
    SandboxSpec,
    Stream,
)

_PIECE = 64 * 1024


class DirectoryProcess(RunningProcess):
    """A process of this machine, in a session of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        queue = asyncio.Queue[tuple[Stream, bytes]](4)
        assert self._process.stdout
        assert self._process.stderr
        readers = [
            asyncio.create_task(_read(Stream.STDOUT, self._process.stdout, queue)),
            asyncio.create_task(_read(Stream.STDERR, self._process.stderr, queue)),
        ]
        open_ones = len(readers)
        try:
            while open_ones:
                stream, piece = await queue.get()
                if piece:
                    yield stream, piece
                else:
                    open_ones -= 1
        finally:
            for reader in readers:
                reader.cancel()

    async def write(self, data: bytes) -> None:
        assert self._process.stdin
        with contextlib.suppress(OSError):
            self._process.stdin.write(data)
            await self._process.stdin.drain()

    async def close_stdin(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()

    async def signal(self, number: int, *, descendants: bool) -> None:
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if descendants else os.kill)(self._process.pid, number)

    async def wait(self) -> ProcessEnded:
        code = await self._process.wait()
        return ProcessEnded(exit_code=code) if code >= 0 else ProcessEnded(signal=-code)

    def threads(self) -> Sequence[process_pb2.ThreadUsage]:
        return [process_pb2.ThreadUsage(thread=self._process.pid)]


class FailedStart(RunningProcess):
    """A process that could not be run."""

    def __init__(self, code: int, line: str) -> None:
        self._code, self._line = code, line

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        yield Stream.STDERR, self._line.encode() + b"\n"

    async def write(self, data: bytes) -> None: ...

    async def close_stdin(self) -> None: ...

    async def signal(self, number: int, *, descendants: bool) -> None: ...

    async def wait(self) -> ProcessEnded:
        return ProcessEnded(exit_code=self._code)


class DirectorySandbox(RunningSandbox):
    """A folder, whose root is `/`."""

    def __init__(self, backend: DirectoryBackend, spec: SandboxSpec, folder: Path) -> None:
        self.image = spec.root if isinstance(spec.root, str) else "built"
        self.image_digest = ""
        self.user = spec.user or "tester"
        self.workdir = spec.workdir or "/work"
        self.folder = folder
        self.lost = asyncio.get_running_loop().create_future()
        self._backend = backend
        self._env = spec.env
        self._processes: list[asyncio.subprocess.Process] = []
        self.place(self.workdir.encode()).mkdir(parents=True, exist_ok=True)

    def place(self, path: bytes) -> Path:
        """Where a path of the sandbox is on this machine, links not followed."""
        text = os.fsdecode(path)
        if not text.startswith("/"):
            text = f"{self.workdir}/{text}"
        return self.folder / os.path.normpath(text).lstrip("/")

    async def start(self, process: process_pb2.ProcessSpec) -> RunningProcess:
        await self._backend.step("start")
        words = [os.fsdecode(word) for word in process.argv.words]
        argv = words or ["/bin/sh", "-c", process.shell]
        env = {"PATH": os.environ["PATH"], **self._env, **process.env}
        cwd = self.place(process.cwd.encode() or b".")
        if not cwd.is_dir():
            return FailedStart(126, f"{process.cwd}: no such folder")
        try:
            started = await asyncio.create_subprocess_exec(
                *argv,
                cwd=cwd,
                env=env,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except FileNotFoundError:
            return FailedStart(127, f"{argv[0]}: not found")
        except PermissionError:
            return FailedStart(126, f"{argv[0]}: cannot be run")
        self._processes.append(started)
        return DirectoryProcess(started)

    async def wait_lost(self) -> str:
        cause: str = await self.lost
        return cause

    async def resolve(self, path: bytes, user: str) -> bytes:
        above, _, name = os.fsencode(self.place(path)).rpartition(b"/")
        real = os.path.realpath(os.path.join(above, name))
        root = os.fsencode(self.folder)
        return real.removeprefix(root) or b"/"

    async def read_file(
        self, path: bytes, offset: int, max_bytes: int, user: str
    ) -> AsyncIterator[bytes]:
        place = self._existing(path)
        if not place.is_file():
            raise _path_invalid(path)
        content = place.read_bytes()[offset:]
        content = content[:max_bytes] if max_bytes else content
        for at in range(0, len(content), _PIECE):
            yield content[at : at + _PIECE]
            await self._backend.step("read")

    async def file_info(self, path: bytes, user: str) -> files_pb2.FileInfo:
        return self._info(self._existing(path))

    async def write_file(self, file: files_pb2.FileContent, user: str) -> None:
        await self._backend.step("write")
        place = self.place(file.path)
        place.parent.mkdir(parents=True, exist_ok=True)
        if file.HasField("offset"):
            with place.open("r+b" if place.exists() else "w+b") as opened:
                opened.truncate(file.offset)
                opened.seek(file.offset)
                opened.write(file.content)
        else:
            place.unlink(missing_ok=True)
            place.write_bytes(file.content)
        place.chmod(file.mode or 0o644)

    async def place_file(self, file: files_pb2.FileContent) -> None:
        await self.write_file(file, self.user)

    async def list_files(
        self, path: bytes, user: str, *, recursive: bool
    ) -> AsyncIterator[files_pb2.FileInfo]:
        place = self._existing(path)
        found = [place] if place.is_file() else place.glob("**/*" if recursive else "*")
        for one in sorted(found, key=os.fsencode):
            yield self._info(one)

    async def read_archive(
        self,
        path: bytes,
        format: files_pb2.ArchiveFormat.ValueType,
        user: str,
        max_bytes: int,
    ) -> AsyncIterator[bytes]:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            archive.add(self._existing(path), ".")
        yield buffer.getvalue()

    async def write_archive(
        self,
        path: bytes,
        archive: str,
        format: files_pb2.ArchiveFormat.ValueType,
        user: str,
        max_bytes: int,
    ) -> None:
        await self._backend.step("unpack")
        self.place(path).mkdir(parents=True, exist_ok=True)
        try:
            with tarfile.open(archive) as opened:
                opened.extractall(self.place(path), filter="data")
        except tarfile.TarError:
            raise _path_invalid(path) from None

    async def call_port(
        self, request: sandbox_pb2.CallPortRequest, max_bytes: int
    ) -> sandbox_pb2.CallPortResponse:
        await self._backend.step("call")
        url = f"http://127.0.0.1:{request.port}{request.path or '/'}"
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.request(request.method or "GET", url, data=request.body) as answer,
            ):
                return sandbox_pb2.CallPortResponse(status=answer.status, body=await answer.read())
        except aiohttp.ClientConnectionError:
            raise MeshError(
                errors_pb2.ERROR_REASON_SANDBOX_PORT_UNREACHABLE, "Nothing listens there."
            ) from None

    async def snapshot(self, name: str) -> sandbox_pb2.Image:
        await self._backend.step("snapshot")
        shutil.copytree(self.folder, self._backend.folder / "snapshots" / name, symlinks=True)
        return sandbox_pb2.Image(name=name, snapshot=True)

    async def end(self) -> None:
        await self._backend.step("end")
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signals.SIGKILL)
            await process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _existing(self, path: bytes) -> Path:
        place = self.place(path)
        if not os.path.lexists(place):
            shown = path.decode("utf-8", "replace")
            raise MeshError(
                errors_pb2.ERROR_REASON_SANDBOX_FILE_NOT_FOUND,
                f"There is no file {shown!r}.",
                metadata={"path": shown},
            )
        return place

    def _info(self, place: Path) -> files_pb2.FileInfo:
        stat = place.lstat()
        kind = (
            files_pb2.FILE_KIND_LINK
            if place.is_symlink()
            else files_pb2.FILE_KIND_FOLDER
            if place.is_dir()
            else files_pb2.FILE_KIND_FILE
        )
        path = os.fsencode(place).removeprefix(os.fsencode(self.folder))
        return files_pb2.FileInfo(path=path, kind=kind, size=stat.st_size, mode=stat.st_mode & 4095)


class DirectoryBackend(SandboxBackend):
    """Sandboxes that are folders below `options["folder"]`.

    Tests hold it up and make it fail: `gates` has an event that a step waits for, `faults` what a
    step raises once.
    """

    name = "directory"
    version = "1"
    default_image = "empty"

    def __init__(self, options: Mapping[str, Any]) -> None:
        if "folder" not in options:
            raise ValueError("options.folder: is missing")
        self.folder = Path(options["folder"])
        self.gates: dict[str, asyncio.Event] = {}
        self.faults: dict[str, list[BaseException]] = {}
        self.specs: list[SandboxSpec] = []
        self.made: dict[str, DirectorySandbox] = {}
        self.capabilities = sandbox_pb2.Capabilities(
            snapshots=True,
            forks=True,
            memory=True,
            ports=True,
            thread_usage=True,
            networks=[sandbox_pb2.NETWORK_KIND_NONE, sandbox_pb2.NETWORK_KIND_RELAY],
        )

    async def step(self, name: str) -> None:
        """What a test holds up or makes fail."""
        if name in self.gates:
            await self.gates[name].wait()
        if self.faults.get(name):
            raise self.faults[name].pop(0)

    async def open(self) -> None:
        for name in ("sandboxes", "snapshots"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)

    async def end_leftovers(self, instance_id: str) -> int:
        left = list((self.folder / "sandboxes").glob(f"{instance_id} *"))
        for one in left:
            shutil.rmtree(one)
        return len(left)

    async def images(self) -> Sequence[sandbox_pb2.Image]:
        kept = [
            sandbox_pb2.Image(name=one.name, snapshot=True)
            for one in sorted((self.folder / "snapshots").iterdir())
        ]
        return [sandbox_pb2.Image(name="empty"), *kept]

    async def create(self, spec: SandboxSpec) -> RunningSandbox:
        await self.step("create")
        self.specs.append(spec)
        folder = self.folder / "sandboxes" / f"{spec.instance_id} {spec.sandbox_id}"
        assert isinstance(spec.root, str)
        if spec.root == "empty":
            folder.mkdir()
        elif (kept := self.folder / "snapshots" / spec.root).is_dir():
            shutil.copytree(kept, folder, symlinks=True)
        else:
            raise MeshError(
                errors_pb2.ERROR_REASON_SANDBOX_IMAGE_NOT_FOUND,
                f"There is no image {spec.root!r}.",
                metadata={"image": spec.root},
            )
        made = self.made[spec.sandbox_id] = DirectorySandbox(self, spec, folder)
        return made

    async def delete_snapshot(self, name: str) -> None:
        shutil.rmtree(self.folder / "snapshots" / name, ignore_errors=True)

    async def close(self) -> None: ...

    @property
    def left(self) -> list[str]:
        """The folders of sandboxes and snapshots that are there."""
        return sorted(one.name for one in self.folder.glob("s*/*"))


async def _read(
    stream: Stream, reader: asyncio.StreamReader, queue: asyncio.Queue[tuple[Stream, bytes]]
) -> None:
    while piece := await reader.read(_PIECE):
        await queue.put((stream, piece))
    await queue.put((stream, b""))


def _path_invalid(path: bytes) -> MeshError:
    shown = path.decode("utf-8", "replace")
    return MeshError(
        errors_pb2.ERROR_REASON_SANDBOX_PATH_INVALID,
        f"{shown!r} is no such thing.",
        metadata={"path": shown},
    )
