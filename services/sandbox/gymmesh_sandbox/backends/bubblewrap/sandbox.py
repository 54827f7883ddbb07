"""A sandbox of bubblewrap: how it is made, what runs in it, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import resource
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

from gymmesh.sandbox.v1 import files_pb2, process_pb2, sandbox_pb2
from gymmesh_runtime.errors import MeshError, Reason
from gymmesh_sandbox.backends.base import RunningSandbox, SandboxSpec
from gymmesh_sandbox.backends.bubblewrap.archives import pack, unpack
from gymmesh_sandbox.backends.bubblewrap.errors import image_failed, option_unsupported
from gymmesh_sandbox.backends.bubblewrap.machine import Machine
from gymmesh_sandbox.backends.bubblewrap.process import LocalProcess
from gymmesh_sandbox.backends.bubblewrap.roots import RootImage, remove_tree
from gymmesh_sandbox.backends.bubblewrap.tree import Owner, SandboxTree
from gymmesh_sandbox.backends.bubblewrap.users import ImageUser, find_user
from gymmesh_sandbox.local import (
    Child,
    Descriptors,
    GroupLimits,
    Groups,
    InputPipe,
    OutputPipe,
    ProcessGroup,
    SandboxGroup,
    StartError,
)

_SHELL = b"/bin/sh"
_MS_NOSUID, _MS_NODEV = 2, 4
_SHM_BYTES = 64 << 20
_OPEN_FILES = 65_536
_SMALL_FILE = 1 << 20
# What the kernel shows of its host, and no program inside needs.
_HIDDEN = ("/proc/cmdline", "/proc/keys")
# What root may do in a sandbox, by the numbers of linux/capability.h: chown, dac_override, fowner,
# fsetid, kill, setgid, setuid, setpcap, net_bind_service, in its own user namespace.
_ROOT_CAPABILITIES = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 8, 10))
_PF_EXITING = 0x4


class BubblewrapBox(RunningSandbox):
    """See RunningSandbox. Made by `start_box`."""

    def __init__(
        self, machine: Machine, spec: SandboxSpec, image: RootImage, user: ImageUser, folder: Path
    ) -> None:
        self._machine = machine
        self._spec = spec
        self._root_image = image
        self._user = user
        self._folder = folder
        self.image = image.name
        self.image_digest = image.digest
        self.user = user.name
        self.workdir = spec.workdir or image.workdir
        self._token = -1
        self._group: SandboxGroup | None = None
        self._launcher: Child | None = None
        self._first: Child | None = None
        self._tree = SandboxTree(-1, machine.ids(user.uid), owns=machine.privileged)
        self._numbers = itertools.count(1)
        self._processes: set[LocalProcess] = set()
        self._on_end: Callable[[BubblewrapBox], None] = lambda _: None
        self._ending: asyncio.Task[None] | None = None
        self._cause: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    # ---- its start

    async def open(self, token: int) -> None:
        """Makes it; nothing is left of it when that fails."""
        self._token = token
        try:
            await asyncio.to_thread(self._prepare)
            await self._launch()
            workdir = os.fsencode(self.workdir)
            await self._machine.in_thread(self._make_folder, workdir)
        except BaseException:
            await self.end()
            raise

    def _prepare(self) -> None:
        try:
            if self._machine.grouped:
                resources = self._spec.resources
                limits = GroupLimits(
                    memory_bytes=resources.memory_bytes,
                    pids=resources.pids,
                    cpu_millis=resources.cpu_millis,
                    yields=self._machine.yields,
                )
                self._group = Groups(str(self._folder.parent)).make(self._folder.name, limits)
            self._folder.mkdir(parents=True)
            if not self._spec.resources.disk_bytes:
                for name in ("upper", "work"):
                    (self._folder / name).mkdir()
                    if self._machine.privileged:
                        owner = self._machine.root_id
                        os.chown(self._folder / name, owner, owner)
        except OSError as error:
            raise self._failed(str(error)) from error

    async def _launch(self) -> None:
        with Descriptors() as owned, contextlib.ExitStack() as stack:
            (ready, ready_end), (said, said_end) = owned.pipe(), owned.pipe()
            status, status_end = owned.pipe()
            calls = owned.memory_file(self._machine.filter)
            try:
                self._launcher = await self._machine.starter.start(
                    "box",
                    (ready_end, said_end, status_end, calls, self._machine.first_process),
                    argv=[os.fsencode(word) for word in self._command()],
                    groups=self._group.join_files if self._group else [],
                    mounts=self._mounts(),
                    id_map=self._machine.id_map,
                )
            except StartError as error:
                raise self._failed(str(error)) from error
            for end in (ready_end, said_end, status_end):
                owned.close(end)
            outputs = [OutputPipe(owned.give(one)) for one in (ready, said, status)]
            for output in outputs:
                stack.callback(output.close)
            if not await outputs[0].read(1):
                reason = (await outputs[1].read(4096)).decode("utf-8", "replace").strip()
                raise self._failed(reason[-500:] or "no reason given")
            await self._enter(await outputs[2].read(4096))

    async def _enter(self, status: bytes) -> None:
        child = re.search(rb'"child-pid": *([0-9]+)', status)
        launcher = self._launcher
        assert child
        assert launcher
        pid = int(child[1])
        try:
            pidfd, root = await self._machine.starter.ask(
                "enter", box=self._token, pid=pid, parent=launcher.pid
            )
        except StartError as error:
            raise self._failed(str(error)) from error
        self._first = Child(pid, pidfd, launcher.status)
        self._tree.root = root
        launcher.status.add_done_callback(self._on_lost)

    def _mounts(self) -> Sequence[Mapping[str, object]]:
        """The copy-on-write file system, over a folder that every machine has."""
        folder = os.fsencode(self._folder)
        kept = self._folder
        mounts: list[Mapping[str, object]] = []
        if disk := self._spec.resources.disk_bytes:
            (self._folder / "disk").mkdir()
            kept = self._folder / "disk"
            owner = self._machine.root_id if self._machine.privileged else 0
            mounts.append(
                {
                    "kind": b"tmpfs",
                    "source": b"tmpfs",
                    "target": b"disk",
                    "flags": _MS_NOSUID | _MS_NODEV,
                    "options": b"size=%d,mode=755" % disk,
                    "folder": folder,
                    "make": [(b"disk/upper", owner), (b"disk/work", owner)],
                }
            )
        lower = b":".join(
            os.fsencode(os.path.relpath(layer, self._folder)) for layer in self._root_image.layers
        )
        upper = os.fsencode(os.path.relpath(kept, self._folder))
        options = b"lowerdir=%b,upperdir=%b/upper,workdir=%b/work,volatile" % (lower, upper, upper)
        if not self._machine.privileged:
            options += b",userxattr"
        mounts.append(
            {
                "kind": b"overlay",
                "source": b"overlay",
                "target": b"/tmp",
                "flags": _MS_NOSUID | _MS_NODEV,
                "options": options,
                "folder": folder,
                "make": [],
            }
        )
        return mounts

    def _command(self) -> Sequence[str]:
        command = [self._machine.bwrap, "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
        command += ["--unshare-cgroup-try", "--hostname", "sandbox", "--die-with-parent"]
        command += ["--as-pid-1", "--new-session", "--cap-drop", "ALL"]
        if self._spec.network.WhichOneof("kind") != "open":
            command.append("--unshare-net")
        if not self._machine.privileged:
            uid, gid = str(self._user.uid), str(self._user.gid)
            command += ["--unshare-user", "--uid", uid, "--gid", gid]
        command += ["--bind", "/tmp", "/"]
        for bind in self._root_image.binds:
            command += ["--ro-bind", str(bind), str(bind)]
        command += ["--proc", "/proc", "--dev", "/dev"]
        for path in _HIDDEN:
            if os.path.exists(path):
                command += ["--ro-bind", "/dev/null", path]
        size = self._spec.resources.memory_bytes // 2 or _SHM_BYTES
        command += ["--perms", "1777", "--size", str(size), "--tmpfs", "/dev/shm"]
        command += ["--remount-ro", "/dev"]
        # The descriptors that the spawner passes: see its `_start_box`.
        command += ["--json-status-fd", "3", "--seccomp", "4", "--", "/proc/self/fd/5"]
        return command

    def _make_folder(self, path: bytes) -> None:
        owner = Owner(self._user.uid, self._user.gid)
        try:
            with self._tree.folder(path, owner):
                pass
        except OSError as error:
            raise self._tree.failed(error, path) from None

    def _failed(self, cause: str) -> MeshError:
        return image_failed(self.image, cause)

    # ---- processes

    async def start(self, process: process_pb2.ProcessSpec) -> LocalProcess:
        self._check_running()
        user = self._user
        if process.user:
            user = await self._machine.in_thread(self._find_user, process.user)
        group, join = self._process_group()
        with Descriptors() as owned:
            stdin_end, stdin = owned.pipe()
            (stdout, stdout_end), (stderr, stderr_end) = owned.pipe(), owned.pipe()
            try:
                child = await self._machine.starter.start(
                    "exec",
                    (stdin_end, stdout_end, stderr_end),
                    box=self._token,
                    argv=_words(process),
                    env=self._environment(process, user),
                    cwd=os.fsencode(os.path.join(self.workdir, process.cwd)),
                    groups=join,
                    rlimits=_rlimits(process, self._spec.resources),
                    uid=user.uid,
                    gid=user.gid,
                    gids=list(user.gids),
                    capabilities=_ROOT_CAPABILITIES if user.uid == 0 else 0,
                    subreaper=int(group is None),
                    filter=self._machine.filter,
                )
            except BaseException as error:
                if group is not None:
                    group.remove()
                if isinstance(error, StartError):
                    raise self.lost() or self._failed(str(error)) from error
                raise
            outputs = OutputPipe(owned.give(stdout)), OutputPipe(owned.give(stderr))
            pipes = (InputPipe(owned.give(stdin)), *outputs)
        started = LocalProcess(child, pipes, group, self, lambda: self._forget(started))
        self._processes.add(started)
        return started

    def _forget(self, process: LocalProcess) -> None:
        self._processes.discard(process)

    def _process_group(self) -> tuple[ProcessGroup | None, list[str]]:
        if self._group is None:
            return None, []
        try:
            return self._group.process(next(self._numbers))
        except OSError as error:
            raise self.lost() or self._failed(f"no control group: {error}") from error

    def _find_user(self, wanted: str) -> ImageUser:
        passwd = self._tree.read_small(b"/etc/passwd", _SMALL_FILE)
        group = self._tree.read_small(b"/etc/group", _SMALL_FILE)
        user = find_user(wanted, passwd, group)
        if not self._machine.privileged and user.uid != self._user.uid:
            raise option_unsupported("user")
        return user

    def _environment(
        self, process: process_pb2.ProcessSpec, user: ImageUser
    ) -> Mapping[bytes, bytes]:
        variables = {"HOME": user.home, **self._root_image.env, **self._spec.env, **process.env}
        return {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}

    # ---- files

    async def resolve(self, path: bytes) -> bytes:
        return await self._machine.in_thread(self._tree.resolve, self._absolute(path))

    async def read_file(self, path: bytes, offset: int, max_bytes: int) -> AsyncIterator[bytes]:
        pieces = self._tree.read(self._absolute(path), offset, max_bytes)
        async for piece in self._machine.iterated(pieces):
            yield piece

    async def file_info(self, path: bytes) -> files_pb2.FileInfo:
        return await self._machine.in_thread(self._tree.info, self._absolute(path))

    async def write_file(self, file: files_pb2.FileContent, user: str) -> None:
        await self._machine.in_thread(self._write, file, user)

    def _write(self, file: files_pb2.FileContent, user: str) -> None:
        self._tree.write(file, self._absolute(file.path), self._owner(user))

    def _owner(self, user: str) -> Owner:
        found = self._find_user(user) if user else self._user
        return Owner(found.uid, found.gid)

    async def list_files(
        self, path: bytes, *, recursive: bool
    ) -> AsyncIterator[files_pb2.FileInfo]:
        files = self._tree.list(self._absolute(path), recursive=recursive)
        async for batch in self._machine.batches(files):
            for file in batch:
                yield file

    async def read_archive(
        self, path: bytes, format: files_pb2.ArchiveFormat.ValueType
    ) -> AsyncIterator[bytes]:
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

    # ---- what is not here yet

    async def call_port(
        self, request: sandbox_pb2.CallPortRequest, max_bytes: int
    ) -> sandbox_pb2.CallPortResponse:
        raise option_unsupported("CallPort")

    async def snapshot(self, name: str) -> sandbox_pb2.Image:
        raise option_unsupported("SnapshotSandbox")

    # ---- its end

    def memory_kills(self) -> int:
        """How many processes the kernel has killed at the limit of memory."""
        return self._group.memory_kills() if self._group else 0

    def lost(self) -> MeshError | None:
        """SANDBOX_LOST when it has ended, or is about to."""
        if self._first is not None and not self._cause.done() and not _exiting(self._first):
            return None
        cause = self._cause.result() if self._cause.done() else "ended"
        return MeshError(
            Reason.ERROR_REASON_SANDBOX_LOST,
            f"The sandbox has ended: {cause}.",
            metadata={"sandbox_id": self._spec.sandbox_id, "cause": cause},
        )

    def _check_running(self) -> None:
        if self._ending or self._cause.done():
            raise self.lost() or self._failed("it has ended")

    def kill(self) -> None:
        """Kills all that is in it."""
        if self._first is not None:
            self._first.signal(signal.SIGKILL)
        elif self._launcher is not None:
            self._launcher.signal(signal.SIGKILL)

    def _on_lost(self, status: asyncio.Future[int]) -> None:
        if self._ending or self._cause.done():
            return
        if status.cancelled():
            self._cause.set_result("its spawner was killed")
        else:
            self._cause.set_result("out of memory" if self.memory_kills() else "killed")

    async def wait_lost(self) -> str:
        return await asyncio.shield(self._cause)

    def on_end(self, call: Callable[[BubblewrapBox], None]) -> None:
        """Calls this once it is being ended."""
        self._on_end = call

    async def end(self) -> None:
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        # To its end even when the caller is cancelled: nothing may be left.
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        self._on_end(self)
        self.kill()
        if self._launcher is not None:
            await asyncio.wait([self._launcher.status])
            with contextlib.suppress(StartError):
                await self._machine.starter.ask("forget", box=self._token)
            self._launcher.close()
        if not self._cause.done():
            self._cause.set_result("ended")
        for process in list(self._processes):
            with contextlib.suppress(MeshError):
                await process.wait()
            process.close()
        self._tree.close()
        if self._first is not None:
            self._first.close()
        await asyncio.to_thread(self._remove)

    def _remove(self) -> None:
        if self._group is not None:
            self._group.remove()
        remove_tree(self._folder)


def _words(process: process_pb2.ProcessSpec) -> list[bytes]:
    if process.WhichOneof("command") == "shell":
        return [_SHELL, b"-c", os.fsencode(process.shell)]
    return list(process.argv.words)


def _rlimits(
    process: process_pb2.ProcessSpec, resources: sandbox_pb2.Resources
) -> list[tuple[int, int]]:
    limits = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, process.open_files or _OPEN_FILES),
    ]
    for name, value in (
        (resource.RLIMIT_CPU, process.cpu_s),
        (resource.RLIMIT_FSIZE, process.file_bytes),
        (resource.RLIMIT_AS, process.address_space_bytes),
        (resource.RLIMIT_NPROC, resources.pids),
    ):
        if value:
            limits.append((name, value))
    return limits


def _exiting(process: Child) -> bool:
    """Whether a process has ended or begun to: all others of its sandbox are killed before."""
    try:
        with open(f"/proc/{process.pid}/stat", "rb") as file:
            flags = int(file.read().rpartition(b")")[2].split()[6])
    except OSError:
        return True
    return bool(flags & _PF_EXITING)
