"""A trainer behind NAT serves its engine to a mesh that can't dial it, over a link that is cut.

Host 1 has the mesh: a registry, an environment, an agent and a relay, over mutual TLS. Host 2 is a
router that translates addresses; the trainer is behind it. 512 rollouts of six model calls; ten
cuts: short ones that connections live through, resets, and ones that outlast connections.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from gymmesh_cli.services.development_certificates import issue
from tests.hosts.nat import HostBehindNat, behind_nat
from tests.hosts.network import Host
from tests.support.optional import require
from tests.support.served import ROOT, Served, serve

pytestmark = pytest.mark.timeout(580)

TASKS: Final = 64
REPEATS: Final = 8
CALLS: Final = TASKS * REPEATS * 6
BOUND_S: Final = 500.0
#: Kinds of cuts and their seconds.
CUTS: Final = (
    ("silence", 1.0), ("reset", 0.5), ("silence", 18.0), ("reset", 3.0), ("silence", 4.0),
    ("silence", 25.0), ("reset", 0.5), ("silence", 2.0), ("silence", 14.0), ("reset", 8.0),
)  # fmt: skip
_DIAL: Final = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()
except OSError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def mesh_file(folder: Path, certificates: Path) -> Path:
    """The configuration of the mesh, which has no model."""
    tls = {"authority": str(certificates / "ca.pem"), **pair(certificates, "services")}
    document = {
        "models": {},
        "environments": {"talk": {"use": "tests.unit.trainers.environments:Talk"}},
        "relays": {"door": {"offers": {"policy-*": ["trainer"]}, "grace_s": 60}},
        "defaults": {"environment": "talk"},
        "security": {
            "tls": tls,
            "identities": {
                "services": {"certificates": ["services"], "may": ["register", "serve"]},
                "trainer": {
                    "certificates": ["trainer"],
                    "may": ["collect", "register"],
                    "registers": ["model"],
                },
            },
            "plain_metrics": True,
        },
    }
    path = folder / "mesh.json"
    path.write_text(json.dumps(document))
    return path


def pair(certificates: Path, name: str) -> dict[str, str]:
    """The certificate and the key of a name."""
    return {
        "certificate": str(certificates / f"{name}.pem"),
        "key": str(certificates / f"{name}.key"),
    }


@asynccontextmanager
async def mesh_on(host: Host, config: Path, folder: Path) -> AsyncIterator[dict[str, Served]]:
    """The services, by their kind."""
    async with AsyncExitStack() as stack:
        found: dict[str, Served] = {}
        for kind, name in (
            ("discovery", ""), ("environment", "talk"), ("agent", "tool_loop"), ("relay", "door"),
        ):  # fmt: skip
            registry = found["discovery"].said["address"] if found else ""
            found[kind] = await serve(
                kind, *([name] if name else []), "--config", config, "--host", host.address,
                *(["--discovery", registry] if registry else []),
                log=folder / f"{kind}.log", prefix=host.prefix,
            )  # fmt: skip
            stack.push_async_callback(found[kind].kill)
        yield found


async def outcome(prefix: Sequence[str], *command: str) -> str:
    """What a program said on standard error, if it failed; empty: it went well."""
    process = await asyncio.create_subprocess_exec(
        *prefix, *command, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE
    )
    _, said = await process.communicate()
    return said.decode().strip() if process.returncode else ""


@asynccontextmanager
async def listening(host: HostBehindNat, port: int) -> AsyncIterator[None]:
    """Something that listens on the host, on all its addresses."""
    process = await asyncio.create_subprocess_exec(
        *host.prefix, sys.executable, "-m", "http.server", str(port),
        stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(60):
            while await dialled(host.prefix, host.address, port):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        yield
    finally:
        process.kill()
        await process.wait()


async def dialled(prefix: Sequence[str], address: str, port: int) -> str:
    """Why a connection from a host to an address fails; empty: it does not."""
    return await outcome(prefix, sys.executable, "-c", _DIAL, address, str(port))


@dataclass
class Training:
    """The trainer's process: how far it is, and what it found."""

    process: asyncio.subprocess.Process
    began: int = 0
    found: dict[str, Any] | None = None

    async def follow(self) -> None:
        """Reads what it says, to its end."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            if line.startswith(b"began "):
                self.began = int(line[6:])
            else:
                self.found = json.loads(line)
        await self.process.wait()

    async def until(self, began: int) -> None:
        """Waits until so many answers were begun."""
        while self.began < began:
            assert self.process.returncode is None
            await asyncio.sleep(0.05)


@asynccontextmanager
async def training(
    host: HostBehindNat, asked: dict[str, Any], log: Path
) -> AsyncIterator[tuple[Training, asyncio.Task[None]]]:
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *host.prefix, sys.executable, "-m", "tests.support.relayed_training", json.dumps(asked),
            stdin=DEVNULL, stdout=PIPE, stderr=file, cwd=ROOT,
        )  # fmt: skip
    trainer = Training(process)
    following = asyncio.create_task(trainer.follow())
    try:
        yield trainer, following
    finally:
        if process.returncode is None:
            process.kill()
        await following


async def cut(host: HostBehindNat, kind: str, seconds: float, ports: Sequence[int]) -> None:
    """Cuts the host's link for so long."""
    if kind == "silence":
        await host.cut_off()
        await asyncio.sleep(seconds)
        await host.reconnect()
        return
    for port in ports:
        await host.reset(port)
    await asyncio.sleep(seconds)
    for port in ports:
        await host.allow(port)


@pytest.fixture
async def nat(hosts: Sequence[Host]) -> AsyncIterator[HostBehindNat]:
    """A host behind the second of the hosts."""
    async with AsyncExitStack() as stack:
        found: HostBehindNat | None = None
        why = ""
        try:
            found = await stack.enter_async_context(behind_nat(hosts[1]))
        except OSError as error:
            why = str(error)
        require(found, "NAT between network namespaces (iptables)", why)
        assert found is not None
        yield found


async def test_a_trainer_behind_nat_trains_on_all_rollouts(
    hosts: Sequence[Host], nat: HostBehindNat, tmp_path: Path
) -> None:
    public, router = hosts
    certificates = tmp_path / "certificates"
    issue(certificates, ("services", "trainer"), [public.address], days=1)
    # Nobody outside reaches it, though it listens.
    async with listening(nat, 9999):
        for address in (nat.address, router.address):
            assert await dialled(public.prefix, address, 9999)
    config = mesh_file(tmp_path, certificates)
    async with mesh_on(public, config, tmp_path) as mesh:
        addresses = {kind: one.said["address"] for kind, one in mesh.items()}
        ports = [int(one.rpartition(":")[2]) for one in addresses.values()]
        asked = {
            "agent": f"discovery://{addresses['discovery']}/tool_loop",
            "relay": addresses["relay"],
            "tasks": TASKS,
            "repeats": REPEATS,
            "concurrency": 64,
            "seconds": [0.2, 1.2],
            "tls": {"authority": str(certificates / "ca.pem"), **pair(certificates, "trainer")},
        }
        log = tmp_path / "trainer.log"
        started = time.monotonic()
        async with training(nat, asked, log) as (trainer, following):
            async with asyncio.timeout(BOUND_S):
                for number, (kind, seconds) in enumerate(CUTS):
                    await trainer.until(CALLS * (number + 1) // (len(CUTS) + 1))
                    await cut(nat, kind, seconds, ports)
                await following
        said = log.read_text()
        found = trainer.found
    assert found is not None, said[-4000:]
    print(json.dumps({**found, "wall_s": round(time.monotonic() - started)}))
    assert found["problems"] == [], found
    assert (found["rollouts"], found["failed"]) == (TASKS * REPEATS, {}), found
    assert found["rewards"] == {"1.0": TASKS * REPEATS}
    # What was sampled is in the rollouts and trained once, but for rollouts that began anew.
    assert found["tokens_in_rows"] == found["tokens_trained"]
    if not found["retried"]:
        assert found["lost"] == 0
        assert found["tokens_sampled"] == found["tokens_in_rows"]
        assert found["began"] == found["calls"] + found["aborted"]
