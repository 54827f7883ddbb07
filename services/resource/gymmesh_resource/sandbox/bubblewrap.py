"""Untrusted programs in bubblewrap: namespaces of their own, a read-only system, no network.

Each run gets fresh user, process, network, ipc, host-name and mount namespaces, an empty `/tmp`,
and a filter of system calls. A service that runs as root gives each slot a user id of its own
that owns nothing on the machine. bubblewrap's manual: bwrap(1).
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import shutil
import sys
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from gymmesh_resource.sandbox import metrics
from gymmesh_resource.sandbox.base import Launch, LocalSandbox, limits_script
from gymmesh_resource.sandbox.cgroups import Cgroup, make_group, remove_stale
from gymmesh_resource.sandbox.process import Process
from gymmesh_resource.sandbox.program import Limits, Program, SandboxError, SandboxUnavailable
from gymmesh_resource.sandbox.seccomp import UnknownMachine, filter_for
from gymmesh_resource.sandbox.warm import (
    LateFiles,
    ProgramKind,
    Spare,
    WarmPool,
    kind_of,
    write_all,
)

_LOGGER = logging.getLogger("gymmesh.resource")
# The user ids of slots when the service is root: far from those of people and services.
_FIRST_UID = 1_879_048_192
_INSIDE_UID = "1000"
_PATH = "/usr/local/bin:/usr/bin:/bin"
# What the kernel shows of its host, and no program inside needs; each costs a mount.
_HIDDEN = ("/proc/cmdline", "/proc/keys")
_ETC = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime")
_PROBE_S = 10.0


class BubblewrapSandbox(LocalSandbox):
    """`Sandbox` on bubblewrap.

    `concurrency`: programs at a time; more wait. `python`: the interpreter for programs, by
    default the service's own where programs can reach it, else the system's. `warm`: programs
    that are started ahead, at most; 0 is none. `warm_idle_s`: seconds without
    a request after which they are ended.
    """

    def __init__(
        self,
        *,
        concurrency: int = 4,
        python: str | None = None,
        warm: int = 0,
        warm_idle_s: float = 300.0,
    ) -> None:
        super().__init__(concurrency=concurrency, spare=warm)
        self.warm = warm
        """How many programs may be started ahead."""
        self._warm_idle_s = warm_idle_s
        self._pool: WarmPool | None = None
        self.handed_over = 0
        """How many requests got a program that was started ahead."""
        self._wanted_python = python
        self._python = ""
        self._prefix: Path | None = None
        self._filter = b""
        self._bwrap = ""
        self._groups: dict[int, Cgroup] = {}

    @property
    def grouped(self) -> bool:
        """Whether control groups bound the memory and processes of a program as a whole."""
        return bool(self._groups)

    def waiting(self, program: Program, limits: Limits) -> int:
        """How many programs are started and can become this one."""
        kind = kind_of(program, limits)
        return self._pool.waiting(kind) if self._pool and kind else 0

    async def open(self) -> None:
        """Make the slots and run a first program. Raises `SandboxUnavailable`."""
        self._bwrap = shutil.which("bwrap") or ""
        if not self._bwrap:
            raise SandboxUnavailable(
                "There is no bubblewrap on this machine: install the Debian package bubblewrap."
            )
        try:
            self._filter = filter_for(platform.machine())
        except UnknownMachine as error:
            raise SandboxUnavailable(f"Programs cannot be held back here: {error}.") from None
        self._python, self._prefix = find_python(self._wanted_python)
        await super().open()
        self._make_groups()
        try:
            await self._probe()
        except BaseException:
            await self.close()
            raise
        if self.warm:
            processors = len(os.sched_getaffinity(0))
            self._pool = WarmPool(
                self.warm,
                self._warm_idle_s,
                start=self._start_spare,
                # A start beside live programs on every processor would only slow them down.
                may_start=lambda: self._working < processors,
            )
            self._pool.open()

    async def close(self) -> None:
        """Kill what runs and remove the control groups; harmless when called twice."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()
        await super().close()
        groups, self._groups = self._groups, {}
        for group in groups.values():
            await asyncio.to_thread(group.remove)

    def _make_groups(self) -> None:
        if os.geteuid() == 0:
            remove_stale()
        made = {slot: make_group(slot) for slot in self._slots}
        self._groups = {slot: group for slot, group in made.items() if group}
        if len(self._groups) < len(made):
            _LOGGER.warning(
                "Control groups cannot be used here: the memory of a sandboxed program is bounded "
                "for each of its processes only, and not for all together. Run the service as "
                "root, or delegate the controllers memory and pids to it; see docs/sandbox.md."
            )

    async def _probe(self) -> None:
        program = Program(("{python}", "-I", "-S", "-c", "print('ready')"))
        try:
            result = await self.run(program, Limits(wall_s=_PROBE_S))
        except SandboxError as error:
            raise SandboxUnavailable(
                f"bubblewrap does not work here ({error}): it needs unprivileged user namespaces."
            ) from None
        if result.stdout != b"ready\n":
            said = result.stderr.decode("utf-8", "replace").strip()[-300:]
            raise SandboxUnavailable(
                f"The interpreter {self._python} does not run in the sandbox ({said}): set the"
                " option python to one below /usr."
            )

    @asynccontextmanager
    async def _running_program(self, program: Program, limits: Limits) -> AsyncGenerator[Process]:
        kind = kind_of(program, limits)
        spare = self._pool.take(kind) if self._pool and kind else None
        try:
            if spare is not None:
                async with spare.surroundings:
                    if await spare.hand_over(program):
                        self.handed_over += 1
                        metrics.SANDBOX_STARTS.labels("warm").inc()
                        yield spare.process
                        return
            async with super()._running_program(program, limits) as process:
                yield process
        finally:
            if self._pool is not None:
                self._pool.wake()

    async def _start_spare(self, kind: ProgramKind) -> Spare:
        """A program that waits, in surroundings that are complete. Raises `SandboxError`."""
        async with AsyncExitStack() as stack:
            slot = stack.enter_context(self._slot())
            try:
                files = LateFiles(kind.late)
            except OSError as error:
                raise SandboxError(f"A file could not be made: {error}") from error
            stack.callback(files.close)
            program = Program(kind.argv, dict(kind.files))
            launch = self._launch(program, kind.limits, slot, files.paths)
            process = await stack.enter_async_context(self._process(launch, kind.limits, slot))
            try:
                async with asyncio.timeout(_PROBE_S):
                    ready = await process.until_heard()
            except TimeoutError:
                ready = False
            if not ready:
                raise SandboxError("A program that was to wait did not.")
            files.unlink()
            return Spare(kind, process, files, stack.pop_all())

    def _launch(
        self, program: Program, limits: Limits, slot: int, late: Mapping[str, str] | None = None
    ) -> Launch:
        status, writes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        launch = Launch([], descriptors=[writes], status=status)
        arguments = [*self._surroundings(limits), "--json-status-fd", str(writes)]
        launch.descriptors.append(_memory_file(self._filter))
        arguments += ["--seccomp", str(launch.descriptors[-1])]
        for name, content in program.files.items():
            launch.descriptors.append(_memory_file(content))
            arguments += ["--perms", "0444", "--file", str(launch.descriptors[-1]), f"/app/{name}"]
        for name, path in (late or {}).items():
            arguments += ["--ro-bind", path, f"/app/{name}"]
        arguments += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp", "--"]
        command = [self._python if part == "{python}" else part for part in program.argv]
        # The shell stays, as the first process of its space: its end is the end of all others.
        script = limits_script(limits) + '"$@"; exit $?'
        inner = ["/bin/sh", "-c", script, "sh", *command]
        launch.argv = self._outer(limits, slot, [self._bwrap, *arguments, *inner])
        return launch

    def _outer(self, limits: Limits, slot: int, command: list[str]) -> list[str]:
        """Around bubblewrap: join the control group, then become the slot's user."""
        if os.geteuid() == 0:
            uid = str(_FIRST_UID + slot)
            drop = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups"]
            command = [*drop, *command]
        group = self._groups.get(slot)
        if group is None:
            return [shutil.which(command[0]) or command[0], *command[1:]]
        try:
            group.limit(limits)
        except OSError as error:
            raise SandboxError(f"A control group could not be set: {error}") from error
        join = "; ".join(f"echo 0 >{member} || exit 99" for member in group.members)
        return ["/bin/sh", "-c", f'{join}; exec "$@"', "sh", *command]

    def _surroundings(self, limits: Limits) -> Iterable[str]:
        yield from ("--unshare-all", "--die-with-parent", "--as-pid-1", "--new-session")
        yield "--clearenv"
        yield from ("--uid", _INSIDE_UID, "--gid", _INSIDE_UID, "--hostname", "sandbox")
        for name, value in (("PATH", _PATH), ("HOME", "/tmp"), ("LANG", "C.UTF-8")):
            yield from ("--setenv", name, value)
        yield from ("--ro-bind", "/usr", "/usr")
        for link in ("/bin", "/lib", "/lib64", "/sbin"):
            if os.path.islink(link):
                yield from ("--symlink", os.readlink(link), link)
            else:
                yield from ("--ro-bind-try", link, link)
        for path in _ETC:
            yield from ("--ro-bind-try", path, path)
        if self._prefix is not None:
            yield from ("--ro-bind", str(self._prefix), str(self._prefix))
        yield from ("--proc", "/proc", "--dev", "/dev", "--dir", "/app")
        for path in _HIDDEN:
            if os.path.exists(path):
                yield from ("--ro-bind", "/dev/null", path)
        size = str(limits.tmp_bytes)
        yield from ("--size", size, "--tmpfs", "/dev/shm", "--size", size, "--tmpfs", "/tmp")

    def _clean(self, slot: int) -> None:
        group = self._groups.get(slot)
        if group is not None:
            group.kill()


def find_python(wanted: str | None) -> tuple[str, Path | None]:
    """An interpreter that programs can reach, and the folder to show them if not below /usr.

    Raises `SandboxUnavailable`.
    """
    own = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    candidates = [wanted] if wanted else [str(own), "/usr/local/bin/python3", "/usr/bin/python3"]
    for candidate in candidates:
        path = Path(os.path.realpath(candidate))
        if not path.is_file():
            continue
        if path.is_relative_to("/usr"):
            return candidate if candidate.startswith("/usr/") else str(path), None
        if all(parent.stat().st_mode & 0o001 for parent in path.parents):
            return str(path), path.parent.parent
    raise SandboxUnavailable(
        f"Programs cannot reach a Python interpreter ({', '.join(candidates)}): install Python"
        " below /usr, or set the option python."
    )


def _memory_file(content: bytes) -> int:
    descriptor = os.memfd_create("sandbox", os.MFD_CLOEXEC)
    write_all(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
