"""The commands of the chart's pods as processes of this machine.

Each pod is a process that listens on 127.0.0.N; names of Services are put in by hand, as there is
nobody to resolve them.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.deploy.chart import NAMESPACE, Chart, Workload

BOUND_S = 120.0
GYM_CLI = [sys.executable, "-m", "gymmesh_cli"]


class Pods:
    """The services of the chart with its smallest values and more, each with an address."""

    def __init__(self, chart: Chart, folder: Path, *more: str) -> None:
        self.rendered = chart.render("small", *more)
        self.folder = folder
        (folder / "mesh.yaml").write_text(self.rendered.file("mesh.yaml"))
        (folder / "answers.jsonl").write_text(self.rendered.file("answers.jsonl"))
        self.services = self.rendered.services()
        self._hosts = {one.name: f"127.0.0.{7 + at}" for at, one in enumerate(self.services)}

    def host(self, name: str) -> str:
        """The address of a service's pod, by the end of its name."""
        (found,) = (host for one, host in self._hosts.items() if one.endswith(name))
        return found

    def resolved(self, text: str) -> str:
        """A text with addresses in place of Services' names."""
        for name, host in self._hosts.items():
            text = text.replace(f"{name}.{NAMESPACE}.svc:", f"{host}:")
        return text.replace("/etc/gymmesh/", f"{self.folder}/")

    def command(self, service: Workload) -> list[str]:
        """What a service's container runs."""
        host = self._hosts[service.name]
        variables = {"POD_IP": host, "POD_NAME": f"{service.name}-0"}
        arguments = [
            re.sub(r"\$\((\w+)\)", lambda found: variables[found[1]], self.resolved(one))
            for one in service.container["args"]
        ]
        assert "--host=0.0.0.0" in arguments
        return [f"--host={host}" if one == "--host=0.0.0.0" else one for one in arguments]


@asynccontextmanager
async def running(arguments: Sequence[str], folder: Path) -> AsyncIterator[Process]:
    """A process of gym-cli, which must end with 0 when it is asked to, as a kubelet does it."""
    process = await asyncio.create_subprocess_exec(
        *GYM_CLI, *arguments, cwd=folder, stdin=DEVNULL, start_new_session=True
    )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(BOUND_S):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def run(*arguments: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    """A program's exit code, and what it said."""
    process = await asyncio.create_subprocess_exec(
        *arguments, stdin=DEVNULL, stdout=PIPE, stderr=asyncio.subprocess.STDOUT,
        env=os.environ | (env or {}),
    )  # fmt: skip
    async with asyncio.timeout(BOUND_S):
        out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()
