"""The namespaces of one sandbox: bubblewrap creates them, a first process holds them, others join.

Invariant: all processes in the namespaces end with the first process, and the launcher ends after
all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from gymmesh_sandbox_local.descriptors import Descriptors
from gymmesh_sandbox_local.first_process import READY
from gymmesh_sandbox_local.pipes import OutputPipe
from gymmesh_sandbox_local.started import ProcessStart, StartedProcess, start_process
from gymmesh_sandbox_local.starter import Child, SpawnError, Starter

#: The number that the first of `NamespacesSpec.descriptors` has for bubblewrap.
FIRST_DESCRIPTOR: Final = 5
_PF_EXITING = 0x4
_LONGEST_REASON = 65_536
# What the kernel shows of its host, and no program inside needs; each costs a mount.
_HIDDEN = ("/proc/cmdline", "/proc/keys")


class LaunchEnd(Enum):
    """Why namespaces were not created.

    SPAWNER_GONE: the spawner ended. KILLED: something killed bubblewrap or the first process.
    REFUSED: bubblewrap or the spawner could not create them as specified.
    """

    SPAWNER_GONE = "spawner gone"
    KILLED = "killed"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class NamespacesSpec:
    """How namespaces are created.

    Attributes:
        command: bubblewrap's command, see `bubblewrap_command`.
        join: files of control groups that bubblewrap joins first, see SandboxGroup.
        mounts: what the spawner mounts before, in a mount namespace that only bubblewrap has.
        id_map: the users of a user namespace that the spawner creates; empty: bubblewrap creates
            it.
        descriptors: further descriptors that the command names, from FIRST_DESCRIPTOR on.
    """

    command: Sequence[bytes]
    join: Sequence[str] = ()
    mounts: Sequence[Mapping[str, object]] = ()
    id_map: bytes = b""
    descriptors: Sequence[int] = ()


def bubblewrap_command(
    bwrap: str,
    *,
    root: Sequence[str],
    after: Sequence[str] = (),
    user: tuple[int, int] | None = None,
    network: bool = False,
) -> list[bytes]:
    """The command that creates namespaces and runs the first process in them.

    Args:
        bwrap: the path of bubblewrap.
        root: options that create the file system.
        after: further options, after `/proc` and `/dev` exist.
        user: the user and group id inside, if bubblewrap creates the user namespace; None if the
            spawner does.
        network: whether the machine's network is visible.
    """
    command = [bwrap, "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    command += ["--unshare-cgroup-try", "--hostname", "sandbox", "--die-with-parent"]
    command += ["--as-pid-1", "--new-session", "--cap-drop", "ALL"]
    if not network:
        command.append("--unshare-net")
    if user is not None:
        command += ["--unshare-user", "--uid", str(user[0]), "--gid", str(user[1])]
    command += [*root, "--proc", "/proc", "--dev", "/dev"]
    for path in _HIDDEN:
        if os.path.exists(path):
            command += ["--ro-bind", "/dev/null", path]
    command += [*after, "--remount-ro", "/dev"]
    # The descriptors that the spawner passes: see `Namespaces.open`.
    command += ["--seccomp", "3", "--", "/proc/self/fd/4"]
    return [os.fsencode(word) for word in command]


class Namespaces:
    """Namespaces that are open from `open` to `stop`, and can be opened again.

    Args:
        starter: starts everything in them.
        filter: the filter of system calls.
        first_process: a memory file with the program that holds them.
        token: identifies them among others of the same starter.
    """

    def __init__(self, starter: Starter, filter: bytes, first_process: int, token: int) -> None:
        self._starter = starter
        self._filter = filter
        self._first_process = first_process
        self._token = token
        self._launcher: Child | None = None
        self._first: Child | None = None

    @property
    def first_pid(self) -> int:
        """The process id of the first process on this machine; 0: there is none."""
        return self._first.pid if self._first is not None else 0

    @property
    def launcher_pid(self) -> int:
        """The process id of bubblewrap, which stays outside; 0: there is none."""
        return self._launcher.pid if self._launcher is not None else 0

    @property
    def ended(self) -> asyncio.Future[int]:
        """The end of bubblewrap, and so of all processes; cancelled if the spawner is gone."""
        assert self._launcher is not None
        return self._launcher.status

    @property
    def ending(self) -> bool:
        """Whether the first process has ended or has begun to end. All others are killed before
        it ends.
        """
        return self._first is not None and _exiting(self._first)

    async def open(self, spec: NamespacesSpec) -> int:
        """Creates the namespaces; returns a descriptor of their root, which the caller closes.

        Raises SpawnError; then call `stop` to end what exists.
        """
        with Descriptors() as owned:
            heard, heard_end = owned.pipe()
            calls = owned.memory_file(self._filter)
            self._launcher = await self._starter.start(
                "box",
                (heard_end, heard_end, calls, self._first_process, *spec.descriptors),
                argv=spec.command,
                groups=spec.join,
                mounts=spec.mounts,
                id_map=spec.id_map,
            )
            owned.close(heard_end)
            with contextlib.closing(OutputPipe(owned.give(heard))) as output:
                await _until_ready(output)
        (pidfd, root), pid = await self._starter.enter(self._token, self._launcher.pid)
        self._first = Child(pid, pidfd, self._launcher.status)
        return root

    async def failed_launch(self, seconds: float) -> LaunchEnd:
        """Why `open` raised SpawnError. Waits up to this time for the end of bubblewrap."""
        launcher = self._launcher
        if not self._starter.running:
            return LaunchEnd.SPAWNER_GONE
        if launcher is None:
            return LaunchEnd.REFUSED
        await asyncio.wait([launcher.status], timeout=seconds)
        if launcher.status.cancelled():
            return LaunchEnd.SPAWNER_GONE
        if launcher.status.done() and _was_killed(launcher.status.result()):
            return LaunchEnd.KILLED
        return LaunchEnd.REFUSED

    async def start(self, process: ProcessStart) -> StartedProcess:
        """Starts a process in the namespaces. Raises SpawnError."""
        fields = {"box": self._token, "filter": self._filter}
        return await start_process(self._starter, "exec", process, **fields)

    def kill(self) -> None:
        """Kills everything in the namespaces."""
        if self._first is not None:
            self._first.signal(signal.SIGKILL)
        elif self._launcher is not None:
            self._launcher.signal(signal.SIGKILL)

    async def stop(self) -> None:
        """Ends the namespaces with everything in them; may be called twice."""
        self.kill()
        launcher, self._launcher = self._launcher, None
        if launcher is not None:
            await asyncio.wait([launcher.status])
            launcher.close()
        first, self._first = self._first, None
        if first is not None:
            first.close()


async def _until_ready(output: OutputPipe) -> None:
    """Waits for the first process's report. Raises SpawnError with what bubblewrap wrote
    instead.
    """
    said = b""
    while READY not in said:
        piece = await output.read(4096)
        if not piece or len(said) > _LONGEST_REASON:
            reason = said.decode("utf-8", "replace").strip()
            raise SpawnError(reason[-500:] or "no reason given")
        said += piece


def _was_killed(status: int) -> bool:
    """Whether a status of bubblewrap, in the form of os.waitpid, says that SIGKILL ended
    bubblewrap or the first process. Like a shell, bubblewrap passes on the end of the first
    process.
    """
    return os.waitstatus_to_exitcode(status) in (-signal.SIGKILL, 128 + signal.SIGKILL)


def _exiting(process: Child) -> bool:
    try:
        with open(f"/proc/{process.pid}/stat", "rb") as file:
            flags = int(file.read().rpartition(b")")[2].split()[6])
    except OSError:
        return True
    return bool(flags & _PF_EXITING)
