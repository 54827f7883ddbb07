"""A bubblewrap sandbox: how it is created, what runs in it, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import resource
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gymmesh.sandbox.v1 import files_pb2, process_pb2, sandbox_pb2
from gymmesh_runtime.errors import MeshError, Reason
from gymmesh_runtime.timers import to_its_end
from gymmesh_sandbox.backends.base import OUT_OF_MEMORY, SandboxSpec
from gymmesh_sandbox.backends.bubblewrap.errors import image_failed
from gymmesh_sandbox.backends.bubblewrap.files import BoxFiles
from gymmesh_sandbox.backends.bubblewrap.launch import (
    overlay_mounts,
    sandbox_command,
    upper_folder,
)
from gymmesh_sandbox.backends.bubblewrap.machine import Machine
from gymmesh_sandbox.backends.bubblewrap.network import BoxNetwork
from gymmesh_sandbox.backends.bubblewrap.process import LocalProcess
from gymmesh_sandbox.backends.bubblewrap.roots import RootImage, remove_tree
from gymmesh_sandbox.backends.bubblewrap.store import ImageStore
from gymmesh_sandbox.backends.bubblewrap.tree import Owner
from gymmesh_sandbox.backends.bubblewrap.users import ImageUser
from gymmesh_sandbox_local import (
    GroupLimits,
    Groups,
    LaunchEnd,
    MemoryEvents,
    Namespaces,
    NamespacesSpec,
    ProcessGroup,
    ProcessStart,
    SandboxGroup,
    SpawnerGone,
    SpawnError,
    descendants_of,
    memory_events_of_machine,
)

_SHELL = b"/bin/sh"
_OPEN_FILES = 65_536
# What root may do in a sandbox, by the numbers of linux/capability.h: chown, dac_override, fowner,
# fsetid, kill, setgid, setuid, setpcap, net_bind_service, in its own user namespace.
_ROOT_CAPABILITIES = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 8, 10))
_COPIES = 3
_SPAWNER_KILLED = "its spawner was killed"
# Seconds for the end of a launch that failed.
_LAUNCH_END_S = 20.0
_RESOLV_CONF = Path("/etc/resolv.conf")


class BubblewrapBox(BoxFiles):
    """See RunningSandbox. `BubblewrapBackend.create` creates it; `open` starts it."""

    def __init__(
        self,
        machine: Machine,
        store: ImageStore,
        spec: SandboxSpec,
        image: RootImage,
        user: ImageUser,
        folder: Path,
        token: int,
    ) -> None:
        super().__init__(machine, user, spec.workdir or image.workdir)
        self._store = store
        self._spec = spec
        self._root_image = image
        self._folder = folder
        self._layers = image.layers
        self.image = image.name
        self.image_digest = image.digest
        self._token = token
        self._group: SandboxGroup | None = None
        self._namespaces = Namespaces(machine.starter, machine.filter, machine.first_process, token)
        self._numbers = itertools.count(1)
        self._processes: set[LocalProcess] = set()
        self._on_end: Callable[[BubblewrapBox], None] = lambda _: None
        self._network = BoxNetwork(machine, spec)
        self._restarting = False
        self._ending: asyncio.Task[None] | None = None
        self._cause: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    # ---- its start

    async def open(self) -> None:
        """Starts it; if that fails, nothing is left."""
        try:
            # A thread goes on when its caller is cancelled, and would make what was just removed.
            await to_its_end(asyncio.to_thread(self._prepare))
            await self._launch()
            await to_its_end(self._machine.in_thread(self._complete))
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
            self._make_upper()
        except OSError as error:
            raise self._failed(str(error)) from error

    def _make_upper(self) -> None:
        if self._spec.resources.disk_bytes:
            (self._folder / "disk").mkdir(exist_ok=True)
            return
        for name in ("upper", "work"):
            remove_tree(self._folder / name)
            (self._folder / name).mkdir()
            if self._machine.privileged:
                os.chown(self._folder / name, self._machine.root_id, self._machine.root_id)

    async def _launch(self) -> None:
        machine, spec = self._machine, self._spec
        namespaces = NamespacesSpec(
            sandbox_command(machine, spec, self._root_image.binds, self._user),
            join=self._group.join_files if self._group else [],
            mounts=overlay_mounts(machine, spec, self._layers, self._folder),
            id_map=machine.id_map,
        )
        try:
            self._tree.root = await self._namespaces.open(namespaces)
            self._namespaces.ended.add_done_callback(self._on_lost)
            await self._network.open(self._token, self._tree, self.workdir)
        except SpawnError as error:
            raise await self._not_launched(error) from error

    async def _not_launched(self, error: SpawnError) -> MeshError:
        """The error of a start that was interrupted: a fault of the image, unless something killed
        the start.

        The pipes of a killed process close before the spawner, or its end, reports that.
        """
        if isinstance(error, SpawnerGone):
            return self._lost(_SPAWNER_KILLED)
        end = await self._namespaces.failed_launch(_LAUNCH_END_S)
        if end is LaunchEnd.SPAWNER_GONE:
            return self._lost(_SPAWNER_KILLED)
        if end is LaunchEnd.KILLED:
            return self._lost(self._killed_by())
        return self._failed(str(error))

    def _complete(self) -> None:
        """Creates the files that are not part of the image."""
        workdir = os.fsencode(self.workdir)
        try:
            with self._tree.folder(workdir, Owner(self._user.uid, self._user.gid)):
                pass
        except OSError as error:
            raise self._tree.failed(error, workdir) from None
        if self._spec.network.WhichOneof("kind") == "open" and _RESOLV_CONF.is_file():
            file = files_pb2.FileContent(content=_RESOLV_CONF.read_bytes())
            self._tree.write(file, os.fsencode(_RESOLV_CONF), Owner(0, 0))

    def _failed(self, cause: str) -> MeshError:
        return image_failed(self.image, cause)

    # ---- processes

    async def start(self, process: process_pb2.ProcessSpec) -> LocalProcess:
        async with self._use.shared():
            return await self._start(process)

    async def _start(self, process: process_pb2.ProcessSpec) -> LocalProcess:
        self._check_running()
        user = self._user
        if process.user:
            user = await self._user_of(process.user)
        group, join = self._process_group()
        start = ProcessStart(
            argv=_words(process),
            env=self._environment(process, user),
            cwd=os.fsencode(os.path.join(self.workdir, process.cwd)),
            uid=user.uid,
            gid=user.gid,
            gids=user.gids,
            join=join,
            rlimits=_rlimits(process, self._spec.resources),
            capabilities=_ROOT_CAPABILITIES if user.uid == 0 else 0,
            subreaper=group is None,
        )
        try:
            running = await self._namespaces.start(start)
        except BaseException as error:
            if group is not None:
                group.remove()
            if isinstance(error, SpawnError):
                raise self._lost_by(error) from error
            raise
        started = LocalProcess(running, group, self, lambda: self._forget(started))
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

    def _environment(
        self, process: process_pb2.ProcessSpec, user: ImageUser
    ) -> Mapping[bytes, bytes]:
        variables = {"HOME": user.home, **self._root_image.env, **self._network.env}
        variables |= {**self._spec.env, **process.env}
        return {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}

    # ---- snapshots

    async def snapshot(self, name: str) -> sandbox_pb2.Image:
        """Saves the written files. If nothing runs in the sandbox, they become a layer, which the
        sandbox also uses from now on.

        Otherwise, and if the disk has a limited size, they are copied.
        """
        async with self._use.exclusive():
            self._check_running()
            layer = await asyncio.to_thread(self._store.new_layer, self._spec.instance_id)
            try:
                if self._spec.resources.disk_bytes or await asyncio.to_thread(self._busy):
                    await asyncio.to_thread(self._copy_upper, layer)
                    self._store.add_snapshot(name, self._root_image, (layer, *self._layers))
                else:
                    await self._share_upper(layer)
                    self._store.add_snapshot(name, self._root_image, self._layers)
            finally:
                # A user less: its maker. Those that it has are the snapshot, and this sandbox.
                await asyncio.to_thread(self._store.release, (layer,))
        return sandbox_pb2.Image(name=name, snapshot=True)

    def _busy(self) -> bool:
        """Whether a process runs in it."""
        inside = descendants_of(self._namespaces.first_pid)
        return len(inside) > 1 or bool(self._processes_running())

    def _processes_running(self) -> Sequence[LocalProcess]:
        return [process for process in self._processes if process.running]

    def _copy_upper(self, layer: Path) -> None:
        """Copies the written files, including overlayfs' notes about them.

        If the file system has a limited size, it is in a mount namespace that only bubblewrap has.
        """
        upper = upper_folder(self._spec, self._folder)
        source = Path(f"/proc/{self._namespaces.launcher_pid}/root") / upper.relative_to("/")
        for _ in range(_COPIES):
            copied = subprocess.run(
                ["cp", "-a", "--reflink=auto", "-T", source, layer],
                capture_output=True,
                check=False,
            )
            if copied.returncode == 0:
                return
            remove_tree(layer)  # a file was removed meanwhile, perhaps
        said = copied.stderr.decode("utf-8", "replace").strip()[:500]
        if "No space left" in said:
            raise MeshError(
                Reason.ERROR_REASON_SANDBOX_DISK_FULL,
                "The host of the sandbox has no space left for a snapshot.",
            )
        raise self._failed(f"the sandbox's files could not be copied: {said}")

    async def _share_upper(self, layer: Path) -> None:
        """Ends the namespaces, in which nothing runs, and creates new ones over one layer more."""
        self._restarting = True
        try:
            await self._stop()
            await asyncio.to_thread(self._move_upper, layer)
            await self._launch()
        except BaseException:
            if not self._cause.done():
                self._cause.set_result("a snapshot failed")
            raise
        finally:
            self._restarting = False

    def _move_upper(self, layer: Path) -> None:
        os.rename(self._folder / "upper", layer)
        self._store.use((layer,))
        self._layers = (layer, *self._layers)
        self._make_upper()

    async def call_port(
        self, request: sandbox_pb2.CallPortRequest, max_bytes: int
    ) -> sandbox_pb2.CallPortResponse:
        async with self._use.shared():
            self._check_running()
            try:
                return await self._network.call_port(request, max_bytes)
            except SpawnError as error:
                raise self._lost_by(error) from error

    # ---- its end

    def memory_events(self) -> MemoryEvents:
        """The kernel's reports of memory shortage; those of the machine if there is no group."""
        return self._group.memory_events() if self._group else memory_events_of_machine()

    def lost(self) -> MeshError | None:
        """SANDBOX_LOST if it has ended or is about to end."""
        first_pid = self._namespaces.first_pid
        if first_pid and not self._cause.done() and not self._namespaces.ending:
            return None
        return self._lost(self._cause.result() if self._cause.done() else "ended")

    def _lost_by(self, error: SpawnError) -> MeshError:
        """The error for something that the spawner could not do."""
        if isinstance(error, SpawnerGone):
            return self._lost(_SPAWNER_KILLED)
        return self.lost() or self._failed(str(error))

    def _lost(self, cause: str) -> MeshError:
        return MeshError(
            Reason.ERROR_REASON_SANDBOX_LOST,
            f"The sandbox has ended: {cause}.",
            metadata={"sandbox_id": self._spec.sandbox_id, "cause": cause},
        )

    def _check_running(self) -> None:
        if self._ending or self._cause.done():
            raise self.lost() or self._failed("it has ended")

    def kill(self) -> None:
        """Kills everything in it."""
        self._namespaces.kill()

    @property
    def first_pid(self) -> int:
        """The process id of its first process on this machine."""
        return self._namespaces.first_pid

    def _on_lost(self, status: asyncio.Future[int]) -> None:
        if self._ending or self._restarting or self._cause.done():
            return
        if status.cancelled():
            self._cause.set_result(_SPAWNER_KILLED)
        else:
            self._cause.set_result(self._killed_by())

    def _killed_by(self) -> str:
        events = self.memory_events()
        return OUT_OF_MEMORY if events.limit_hits and events.kills else "killed"

    async def wait_lost(self) -> str:
        return await asyncio.shield(self._cause)

    def on_end(self, call: Callable[[BubblewrapBox], None]) -> None:
        """Registers a function that is called when the sandbox is being ended."""
        self._on_end = call

    async def end(self) -> None:
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        # To its end even when the caller is cancelled: nothing may be left.
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        self._on_end(self)
        await self._stop()
        if not self._cause.done():
            self._cause.set_result("ended")
        for process in list(self._processes):
            with contextlib.suppress(MeshError):
                await process.wait()
            process.close()
        await asyncio.to_thread(self._remove)

    async def _stop(self) -> None:
        """Ends the namespaces, with everything that runs in them."""
        await self._network.close()
        await self._namespaces.stop()
        self._tree.close()

    def _remove(self) -> None:
        if self._group is not None:
            self._group.remove()
        remove_tree(self._folder)
        self._store.release(self._layers)


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
