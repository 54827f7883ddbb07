"""The namespaces of one sandbox: bubblewrap makes them, a first process holds them, others join.

Invariant: all processes in them end with the first one, and the launcher ends after all of them.
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
    """Why namespaces were not made.

    SPAWNER_GONE: the spawner ended. KILLED: something killed bubblewrap or the first process.
    REFUSED: bubblewrap or the spawner could not make them as they were described.
    """

    SPAWNER_GONE = "spawner gone"
    KILLED = "killed"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class NamespacesSpec:
    """How namespaces are made.

    Attributes:
        command: bubblewrap's, see `bubblewrap_command`.
        join: files of control groups that bubblewrap joins first, see SandboxGroup.
        mounts: what the spawner mounts before, in a mount namespace that bubblewrap alone has.
        id_map: the users of a user namespace that the spawner makes; empty: bubblewrap makes it.
        descriptors: further ones that the command names, from FIRST_DESCRIPTOR on.
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
    """The command that makes namespaces and runs the first process in them.

    Args:
        bwrap: the path of bubblewrap.
        root: options that make the file system.
        after: further ones, after `/proc` and `/dev` are there.
        user: the user and group id inside, where bubblewrap makes the user namespace; None where
            the spawner does.
        network: whether the machine's network is seen.
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
    """Namespaces that are open from `open` to `stop`, and can be opened again after that.

    Args:
        starter: what starts everything in them.
        filter: the filter of system calls.
        first_process: a memory file with the program that holds them.
        token: tells them apart from others of the same starter.
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
        """The process id of the first process on this machine; 0: it is not there."""
        return self._first.pid if self._first is not None else 0

    @property
    def launcher_pid(self) -> int:
        """That of bubblewrap, which stays outside; 0: it is not there."""
        return self._launcher.pid if self._launcher is not None else 0

    @property
    def ended(self) -> asyncio.Future[int]:
        """The end of bubblewrap, and so of all; cancelled when the spawner is gone."""
        assert self._launcher is not None
        return self._launcher.status

    @property
    def ending(self) -> bool:
        """Whether the first process has ended or begun to: all others are killed before."""
        return self._first is not None and _exiting(self._first)

    async def open(self, spec: NamespacesSpec) -> int:
        """Makes them; returns a descriptor of their root, the caller's to close.

        Raises SpawnError; `stop` then ends what is there.
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
        """Why `open` raised SpawnError. Waits so long for the end of bubblewrap."""
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
        """Starts a process in them. Raises SpawnError."""
        fields = {"box": self._token, "filter": self._filter}
        return await start_process(self._starter, "exec", process, **fields)

    def kill(self) -> None:
        """Kills all that is in them."""
        if self._first is not None:
            self._first.signal(signal.SIGKILL)
        elif self._launcher is not None:
            self._launcher.signal(signal.SIGKILL)

    async def stop(self) -> None:
        """Ends them with all that is in them; harmless when called twice."""
        self.kill()
        launcher, self._launcher = self._launcher, None
        if launcher is not None:
            await asyncio.wait([launcher.status])
            launcher.close()
        first, self._first = self._first, None
        if first is not None:
            first.close()


async def _until_ready(output: OutputPipe) -> None:
    """Waits for the first process's word. Raises SpawnError with what bubblewrap wrote instead."""
    said = b""
    while READY not in said:
        piece = await output.read(4096)
        if not piece or len(said) > _LONGEST_REASON:
            reason = said.decode("utf-8", "replace").strip()
            raise SpawnError(reason[-500:] or "no reason given")
        said += piece


def _was_killed(status: int) -> bool:
    """Whether a status of bubblewrap, as os.waitpid has it, says that SIGKILL ended it, or the
    first process, whose end it passes on as a shell does.
    """
    return os.waitstatus_to_exitcode(status) in (-signal.SIGKILL, 128 + signal.SIGKILL)


def _exiting(process: Child) -> bool:
    try:
        with open(f"/proc/{process.pid}/stat", "rb") as file:
            flags = int(file.read().rpartition(b")")[2].split()[6])
    except OSError:
        return True
    return bool(flags & _PF_EXITING)
