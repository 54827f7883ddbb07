"""A Consul agent on a host, which lets in only who shows a certificate."""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.request
from asyncio.subprocess import DEVNULL, STDOUT
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.hosts.network import Host

PORT: Final = 8501
_START_S: Final = 60.0


@dataclass(frozen=True)
class Consul:
    """Where the agent is, and what is shown to it."""

    address: str
    context: ssl.SSLContext

    async def passing(self) -> dict[str, str]:
        """The addresses of the mesh's services that pass, by their ids, as Consul itself says."""
        found = {}
        for name in await self._get("/v1/catalog/services"):
            for entry in await self._get(f"/v1/health/service/{name}?passing"):
                if name.startswith("gymmesh-"):
                    service = entry["Service"]
                    found[service["ID"]] = service["Address"]
        return found

    async def has_leader(self) -> bool:
        """Whether it answers, and can be written to."""
        try:
            return bool(await self._get("/v1/status/leader"))
        except (OSError, ValueError):
            return False

    async def _get(self, path: str) -> Any:
        return await asyncio.to_thread(self._ask, path)

    def _ask(self, path: str) -> Any:
        url = f"https://{self.address}{path}"
        with urllib.request.urlopen(url, timeout=10, context=self.context) as answer:
            return json.loads(answer.read())


@asynccontextmanager
async def running(
    program: str, host: Host, certificates: Path, folder: Path
) -> AsyncIterator[Consul]:
    """An agent, ready; ended with the context."""
    config = folder / "consul.json"
    authority = str(certificates / "ca.pem")
    own = {name: str(certificates / f"services.{name}") for name in ("pem", "key")}
    tls = {"ca_file": authority, "cert_file": own["pem"], "key_file": own["key"]}
    ports = {"http": -1, "https": PORT, "dns": -1, "grpc": -1, "grpc_tls": -1, "serf_wan": -1}
    config.write_text(
        json.dumps({"tls": {"defaults": {**tls, "verify_incoming": True}}, "ports": ports})
    )
    context = ssl.create_default_context(cafile=authority)
    context.load_cert_chain(own["pem"], own["key"])
    with (folder / "consul.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *host.prefix, program, "agent", "-dev", f"-bind={host.address}",
            f"-client={host.address}", f"-config-file={config}",
            stdin=DEVNULL, stdout=log, stderr=STDOUT, start_new_session=True,
        )  # fmt: skip
    found = Consul(f"{host.address}:{PORT}", context)
    try:
        async with asyncio.timeout(_START_S):
            while not await found.has_leader():
                assert process.returncode is None, (folder / "consul.log").read_text()[-4000:]
                await asyncio.sleep(0.1)
        yield found
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
