"""Slurm's own daemons on ports of this machine: a controller, and a slurmd for each node."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import socket
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.support.ports import free_port

PROGRAMS: Final = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue")
NODES: Final = 3
BOUND_S: Final = 120.0
_PAUSE_S: Final = 0.2

_CONF: Final = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
{nodes}
PartitionName=all Nodes=n[1-{count}] Default=YES MaxTime=INFINITE State=UP
"""


class Cluster:
    """A cluster while it runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: list[Process] = []

    async def start(self) -> None:
        """Starts the daemons, and waits until all nodes are idle."""
        taken: set[int] = set()
        ports = [free_port(taken=taken) for _ in range(NODES + 1)]
        nodes = "\n".join(
            f"NodeName=n{at} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={port} "
            "CPUs=1 RealMemory=100"
            for at, port in enumerate(ports[1:], 1)
        )
        conf = _CONF.format(
            host=socket.gethostname(), port=ports[0], folder=self.folder, nodes=nodes, count=NODES,
            user="root",
        )  # fmt: skip
        (self.folder / "slurm.conf").write_text(conf)
        (self.folder / "state").mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        await self._daemon(
            "munged", "--foreground", "--force", "--key-file", key,
            "--socket", self.folder / "munge.socket", "--pid-file", self.folder / "munge.pid",
            "--log-file", self.folder / "munge.log", "--seed-file", self.folder / "munge.seed",
        )  # fmt: skip

        async def listens() -> bool:
            return (self.folder / "munge.socket").exists()

        await until(listens)
        configured = ("-D", "-f", self.folder / "slurm.conf")
        await self._daemon("slurmctld", *configured)
        for at in range(1, NODES + 1):
            (self.folder / f"spool-n{at}").mkdir()
            await self._daemon("slurmd", *configured, "-N", f"n{at}")

        async def idle() -> bool:
            return f"{NODES} idle" in await self.say("sinfo", "-h", "-o", "%D %T", check=False)

        await until(idle)

    async def stop(self) -> None:
        """Ends the daemons."""
        for process in reversed(self._processes):
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
                try:
                    async with asyncio.timeout(10):
                        await process.wait()
                except TimeoutError:
                    process.kill()
                    await process.wait()

    async def say(
        self, *command: str | Path, check: bool = True, env: Mapping[str, str] | None = None
    ) -> str:
        """What one of Slurm's commands prints; it must succeed, unless ``check`` is False."""
        process = await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, cwd=self.folder,
            env=os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf")} | dict(env or {}),
        )  # fmt: skip
        async with asyncio.timeout(BOUND_S):
            out, _ = await process.communicate()
        assert not check or process.returncode == 0, out.decode()
        return out.decode()

    async def state(self, job: str) -> str:
        """A job's state, such as RUNNING."""
        found = re.search(r"JobState=(\w+)", await self.say("scontrol", "show", "job", job))
        assert found is not None
        return found[1]

    async def reaches(self, job: str, *states: str) -> str:
        """Waits until a job is in one of these states."""
        state = ""

        async def reached() -> bool:
            nonlocal state
            state = await self.state(job)
            return state in states

        await until(reached)
        return state

    async def start_again(self, job: str) -> None:
        """Starts a job that was put back, which Slurm itself does after two minutes.

        Not at once: nodes refuse a job whose credential is of the second in which they ended it.
        """
        await self.reaches(job, "PENDING")
        await self.say("scontrol", "update", f"JobId={job}", "StartTime=now+5")

    async def _daemon(self, program: str, *arguments: str | Path) -> None:
        log = (self.folder / f"{program}.out").open("ab")
        with log:
            process = await asyncio.create_subprocess_exec(
                program, *arguments, stdin=DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._processes.append(process)


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Cluster]:
    """A cluster while the context is open."""
    # munge insists that others may pass through the folder of its socket, and not write to it.
    folder.chmod(0o755)
    cluster = Cluster(folder)
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.stop()


async def until(so: Callable[[], Awaitable[bool]], seconds: float = BOUND_S) -> None:
    """Waits until something holds that says nothing when it comes about."""
    for _ in range(int(seconds / _PAUSE_S)):
        if await so():
            return
        await asyncio.sleep(_PAUSE_S)
    raise AssertionError(f"not so after {seconds} s")
