"""A process that the spawner starts, with pipes to its standard streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gymmesh_sandbox_local.descriptors import Descriptors
from gymmesh_sandbox_local.pipes import InputPipe, OutputPipe
from gymmesh_sandbox_local.starter import Child, Starter


@dataclass(frozen=True, slots=True)
class ProcessStart:
    """The program to start, and its rights and limits.

    Attributes:
        argv, env, cwd: as for `execve`; a name without a slash is looked up in the PATH of `env`.
        uid, gid, gids: the program's user and groups, if the spawner is privileged.
        join: files of control groups that the program joins first.
        rlimits: numbers of `resource.RLIMIT_…` and their values, soft and hard.
        capabilities: a bit mask of the capabilities that the program keeps in its own user
            namespace.
        subreaper: whether orphaned descendants become children of the program.
    """

    argv: Sequence[bytes]
    env: Mapping[bytes, bytes]
    cwd: bytes
    uid: int = 0
    gid: int = 0
    gids: Sequence[int] = ()
    join: Sequence[str] = ()
    rlimits: Sequence[tuple[int, int]] = ()
    capabilities: int = 0
    subreaper: bool = False


@dataclass(frozen=True, slots=True)
class StartedProcess:
    """A process, and this side's ends of its standard streams. The caller closes all of them."""

    child: Child
    stdin: InputPipe
    stdout: OutputPipe
    stderr: OutputPipe

    def close(self) -> None:
        """Releases it; may be called twice."""
        self.stdin.close()
        self.stdout.close()
        self.stderr.close()
        self.child.close()


async def start_process(
    starter: Starter, op: str, process: ProcessStart, **fields: Any
) -> StartedProcess:
    """Lets the spawner start a process by one of its operations. Raises SpawnError."""
    with Descriptors() as owned:
        stdin_end, stdin = owned.pipe()
        (stdout, stdout_end), (stderr, stderr_end) = owned.pipe(), owned.pipe()
        child = await starter.start(
            op,
            (stdin_end, stdout_end, stderr_end),
            argv=process.argv,
            env=process.env,
            cwd=process.cwd,
            groups=process.join,
            rlimits=process.rlimits,
            uid=process.uid,
            gid=process.gid,
            gids=process.gids,
            capabilities=process.capabilities,
            subreaper=int(process.subreaper),
            **fields,
        )
        outputs = OutputPipe(owned.give(stdout)), OutputPipe(owned.give(stderr))
        return StartedProcess(child, InputPipe(owned.give(stdin)), *outputs)
