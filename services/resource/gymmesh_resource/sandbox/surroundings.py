"""The surroundings of one program in bubblewrap: a read-only system, made for it alone."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gymmesh.sandbox.v1 import process_pb2
from gymmesh_resource.sandbox.program import Limits, Program, SandboxError
from gymmesh_resource.sandbox.runner import rlimits_of
from gymmesh_sandbox_local import (
    FIRST_DESCRIPTOR,
    Descriptors,
    GroupLimits,
    Groups,
    Namespaces,
    NamespacesSpec,
    ProcessStart,
    SandboxGroup,
    StartedProcess,
    Starter,
    bubblewrap_command,
    descendants_of,
    threads_of,
)

# The user ids of slots when the service is root: far from those of people and services. Each slot
# has two, for root and for the program's user.
_FIRST_UID: Final = 1_879_048_192
_INSIDE_UID: Final = 1000
_ENVIRONMENT: Final = {
    b"PATH": b"/usr/local/bin:/usr/bin:/bin",
    b"HOME": b"/tmp",
    b"LANG": b"C.UTF-8",
    b"PWD": b"/tmp",
}
_ETC: Final = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime")
# One processor at most, so that others are left, and half of the usual share of it.
_CPU_MILLIS: Final = 1000
# A program may have helpers beside the processes that it was asked to keep to.
_FURTHER_PROCESSES: Final = 2
# As many files as one message to the spawner can have, with what it needs besides.
_MOST_FILES: Final = 200


class SystemRoot:
    """What is the same for all programs.

    Args:
        bwrap: the path of bubblewrap.
        filter: the filter of system calls.
        first_process: the program that holds the namespaces.
        python: the interpreter for programs.
        prefix: a folder that they see beside `/usr`.
    """

    def __init__(
        self, bwrap: str, filter: bytes, first_process: bytes, python: str, prefix: Path | None
    ) -> None:
        self.bwrap = bwrap
        self.filter = filter
        self.python = python
        self.privileged = os.geteuid() == 0
        with Descriptors() as owned:
            self.first_process = owned.give(owned.memory_file(first_process))
        self._mounts = tuple(_mounts(prefix))

    def command(self, limits: Limits, app: list[str]) -> list[bytes]:
        """bubblewrap's command. `app`: the options that fill `/app`."""
        size = str(limits.tmp_bytes)
        root = [*self._mounts, "--dir", "/app", *app]
        shared = ("--perms", "1777", "--size", size, "--tmpfs")
        return bubblewrap_command(
            self.bwrap,
            root=root,
            after=(*shared, "/dev/shm", *shared, "/tmp", "--remount-ro", "/"),
            user=None if self.privileged else (_INSIDE_UID, _INSIDE_UID),
        )

    def close(self) -> None:
        """Lets go of what it holds; harmless when called twice."""
        if self.first_process >= 0:
            os.close(self.first_process)
            self.first_process = -1


@dataclass(slots=True)
class Slot:
    """What one program at a time has on the machine.

    Attributes:
        id_map: its users, for the spawner.
        group: None: control groups can't be used.
        limits: what the group is set to.
    """

    id_map: bytes
    group: SandboxGroup | None
    limits: GroupLimits

    @classmethod
    def make(cls, number: int, groups: Groups | None) -> Slot:
        """The slot of a number that no other has. Raises SandboxError."""
        limits = _group_limits(Limits())
        try:
            group = groups.make(str(number), limits) if groups else None
        except OSError as error:
            raise SandboxError(f"A control group could not be created: {error}") from error
        uid = _FIRST_UID + 2 * number
        id_map = b"0 %d 1\n%d %d 1" % (uid, _INSIDE_UID, uid + 1) if os.geteuid() == 0 else b""
        return cls(id_map, group, limits)

    def limit(self, limits: Limits) -> None:
        """Sets the limits of the next program. Raises SandboxError."""
        wanted = _group_limits(limits)
        if self.group is not None and self.limits != wanted:
            try:
                self.group.limit(wanted)
            except OSError as error:
                raise SandboxError(
                    f"The limits of a control group could not be set: {error}"
                ) from error
            self.limits = wanted

    def close(self) -> None:
        """Removes the group."""
        if self.group is not None:
            self.group.remove()


class FreshSystem:
    """See `Surroundings`: namespaces with a read-only system in a slot.

    Args:
        root: what is the same for all.
        token: tells it apart from others of the same starter.
        slots: those that are free; it takes one, and gives it back.
        late: paths on this machine of files in `/app` that are written later.
    """

    def __init__(
        self,
        root: SystemRoot,
        starter: Starter,
        token: int,
        slots: list[Slot],
        program: Program,
        limits: Limits,
        late: Mapping[str, str],
    ) -> None:
        self._root = root
        self._slots = slots
        self._slot: Slot | None = slots.pop()
        self._program = program
        self._limits = limits
        self._late = late
        self._namespaces = Namespaces(starter, root.filter, root.first_process, token)

    async def begin(self) -> StartedProcess:
        slot = self._slot
        assert slot is not None
        slot.limit(self._limits)
        join = slot.group.join_files if slot.group else []
        with Descriptors() as owned:
            descriptors: list[int] = []
            app = list(self._app(owned, descriptors))
            spec = NamespacesSpec(
                self._root.command(self._limits, app),
                join=join,
                id_map=slot.id_map,
                descriptors=descriptors,
            )
            os.close(await self._namespaces.open(spec))
        python = self._root.python
        command = [python if part == "{python}" else part for part in self._program.argv]
        most = self._limits.processes + _FURTHER_PROCESSES
        start = ProcessStart(
            argv=[os.fsencode(part) for part in command],
            env=_ENVIRONMENT,
            cwd=b"/tmp",
            uid=_INSIDE_UID,
            gid=_INSIDE_UID,
            gids=(_INSIDE_UID,),
            join=join,
            rlimits=(*rlimits_of(self._limits), (resource.RLIMIT_NPROC, most)),
        )
        return await self._namespaces.start(start)

    def _app(self, owned: Descriptors, descriptors: list[int]) -> Iterator[str]:
        files = self._program.files
        if len(files) > _MOST_FILES:
            raise SandboxError(
                f"A program has {len(files)} files, more than the limit of {_MOST_FILES}."
            )
        for name, content in files.items():
            number = FIRST_DESCRIPTOR + len(descriptors)
            descriptors.append(owned.memory_file(content))
            yield from ("--perms", "0444", "--file", str(number), f"/app/{name}")
        for name, path in self._late.items():
            yield from ("--ro-bind", path, f"/app/{name}")

    @property
    def lost(self) -> bool:
        return self._namespaces.ending

    def threads(self, pid: int) -> Sequence[process_pb2.ThreadUsage]:
        first = self._namespaces.first_pid
        # Those whose parents have ended are the first process's.
        return threads_of(first, dict.fromkeys((*descendants_of(pid), *descendants_of(first))))

    def kill(self) -> None:
        self._namespaces.kill()

    async def end(self) -> None:
        await self._namespaces.stop()

    def close(self) -> None:
        slot, self._slot = self._slot, None
        if slot is not None:
            self._slots.append(slot)


def _group_limits(limits: Limits) -> GroupLimits:
    return GroupLimits(
        memory_bytes=limits.memory_bytes,
        pids=limits.processes + _FURTHER_PROCESSES,
        cpu_millis=_CPU_MILLIS,
        yields=True,
    )


def _mounts(prefix: Path | None) -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for link in ("/bin", "/lib", "/lib64", "/sbin"):
        if os.path.islink(link):
            yield from ("--symlink", os.readlink(link), link)
        else:
            yield from ("--ro-bind-try", link, link)
    for path in _ETC:
        yield from ("--ro-bind-try", path, path)
    if prefix is not None:
        yield from ("--ro-bind", str(prefix), str(prefix))
