"""A real Consul agent, on ports of its own, that can be killed and started again."""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.request
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.chaos.processes import free_port

START_S: Final = 60.0


class Agent:
    """`consul agent -dev`, which remembers nothing of its life before a restart."""

    def __init__(self, binary: str) -> None:
        self._binary = binary
        taken: set[int] = set()
        self.port, *self._ports = [free_port(taken=taken) for _ in range(3)]
        self.address = f"127.0.0.1:{self.port}"
        self._process: Process | None = None

    async def start(self) -> None:
        """Starts it, and waits until it has a leader."""
        server, serf = self._ports
        self._process = await asyncio.create_subprocess_exec(
            self._binary, "agent", "-dev", "-bind=127.0.0.1", "-client=127.0.0.1",
            f"-http-port={self.port}", "-dns-port=-1", "-grpc-port=-1", "-grpc-tls-port=-1",
            f"-server-port={server}", f"-serf-lan-port={serf}", "-serf-wan-port=-1",
            stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True,
        )  # fmt: skip
        async with asyncio.timeout(START_S):
            while not await self.ready():
                assert self._process.returncode is None, "the Consul agent ended"
                await asyncio.sleep(0.05)

    async def ready(self) -> bool:
        """Whether it has a leader."""
        try:
            return bool(await self.get("/v1/status/leader"))
        except (OSError, ValueError):
            return False

    async def kill(self) -> None:
        """Ends it with SIGKILL."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
            await self._process.wait()
        self._process = None

    async def get(self, path: str) -> Any:
        """What it answers, as JSON."""
        return await asyncio.to_thread(self._call, "GET", path)

    async def put(self, path: str, body: Any = None) -> None:
        """Sends it something."""
        await asyncio.to_thread(self._call, "PUT", path, body)

    async def passing(self) -> set[str]:
        """The ids of the mesh's services that pass, as Consul itself says."""
        found = set()
        for name in await self.get("/v1/catalog/services"):
            if name.startswith("gymmesh-"):
                for entry in await self.get(f"/v1/health/service/{name}?passing"):
                    found.add(entry["Service"]["ID"])
        return found

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.address}{path}", data, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text and method == "GET" else None


@asynccontextmanager
async def running(binary: str) -> AsyncIterator[Agent]:
    """An agent while the context is open."""
    agent = Agent(binary)
    try:
        await agent.start()
        yield agent
    finally:
        await agent.kill()
