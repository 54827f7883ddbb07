"""A real Consul agent, on ports of its own, that can be killed and started again."""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
import urllib.request
import uuid
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support.certificates import Authority, Pair
from tests.support.ports import free_port

START_S: Final = 60.0


@dataclass(frozen=True)
class Secured:
    """TLS with certificates on both sides, and ACLs that deny what no token allows.

    The files of the agent are in ``folder``; ``reader`` is what this test shows it.
    """

    folder: Path
    authority: Authority
    agent: Pair
    reader: Pair
    token: str = field(default_factory=lambda: str(uuid.uuid4()))  # which may do all

    @classmethod
    def within(cls, folder: Path) -> Secured:
        """New certificates in a folder."""
        authority = Authority(folder, "consul-authority")
        return cls(folder, authority, authority.issue("consul"), authority.issue("consul-reader"))

    def config(self) -> dict[str, Any]:
        """The agent's configuration."""
        files = {
            "ca_file": str(self.authority.path),
            "cert_file": str(self.agent.certificate),
            "key_file": str(self.agent.key),
        }
        tokens = {"initial_management": self.token, "agent": self.token}
        return {
            "tls": {"https": {**files, "verify_incoming": True}},
            "acl": {"enabled": True, "default_policy": "deny", "tokens": tokens},
        }

    def context(self) -> ssl.SSLContext:
        """What this test calls it with."""
        context = ssl.create_default_context(cafile=str(self.authority.path))
        context.load_cert_chain(self.reader.certificate, self.reader.key)
        return context


class Agent:
    """`consul agent -dev`, which remembers nothing of its life before a restart."""

    def __init__(self, binary: str, secured: Secured | None = None) -> None:
        self._binary = binary
        self._secured = secured
        self._context = None if secured is None else secured.context()
        taken: set[int] = set()
        self.port, *self._ports = [free_port(taken=taken) for _ in range(3)]
        self.address = f"127.0.0.1:{self.port}"
        self._process: Process | None = None

    async def start(self) -> None:
        """Starts it, and waits until it has a leader."""
        server, serf = self._ports
        listens = [f"-http-port={self.port}"]
        if self._secured is not None:
            path = self._secured.folder / "consul.json"
            path.write_text(json.dumps(self._secured.config()))
            listens = ["-http-port=-1", f"-https-port={self.port}", f"-config-file={path}"]
        self._process = await asyncio.create_subprocess_exec(
            self._binary, "agent", "-dev", "-bind=127.0.0.1", "-client=127.0.0.1",
            *listens, "-dns-port=-1", "-grpc-port=-1", "-grpc-tls-port=-1",
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

    async def put(self, path: str, body: Any = None) -> Any:
        """Sends it something; what it answers."""
        return await asyncio.to_thread(self._call, "PUT", path, body)

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
        scheme = "http" if self._secured is None else "https"
        request = urllib.request.Request(f"{scheme}://{self.address}{path}", data, method=method)
        if self._secured is not None:
            request.add_header("X-Consul-Token", self._secured.token)
        with urllib.request.urlopen(request, timeout=10, context=self._context) as answer:
            text = answer.read()
        return json.loads(text) if text else None


@asynccontextmanager
async def running(binary: str, secured: Secured | None = None) -> AsyncIterator[Agent]:
    """An agent while the context is open."""
    agent = Agent(binary, secured)
    try:
        await agent.start()
        yield agent
    finally:
        await agent.kill()
