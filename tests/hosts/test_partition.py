"""A mesh on two hosts, over mutual TLS and Consul: one is cut off twice, and the laws of the judge
of the chaos runs hold.

Host 1 has Consul, the policy's endpoint and the collector; both have an instance of each service.
The first partition is short: connections live through it. The second is longer than connections,
leases and the collector's patience with a stream last.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from gymmesh_cli.services.development_certificates import issue
from tests.chaos.collecting import Collecting, arguments_of
from tests.chaos.folder import Folder
from tests.chaos.plan import World
from tests.chaos.processes import Endpoint
from tests.chaos.seed import TIMEOUT_S, judge, quiet
from tests.chaos.till_tasks import Wanted, asked
from tests.hosts.consul_agent import Consul, running
from tests.hosts.network import Host
from tests.support.served import ROOT, Served, serve

pytestmark = pytest.mark.timeout(420)

ENDPOINT_PORT: Final = 8080
WITHIN_S: Final = 240.0
BOUND_S: Final = 240.0
SHORT_S: Final = 4.0
LONG_S: Final = 40.0
#: Each rollout has two model calls, of 1.1 s on average: so the run outlasts the partitions.
WORLD: Final = World(
    seed=96, layout="mesh", api="responses", tasks=60, repeats=4, concurrency=6, shard_rows=None,
    zstd=False, trace=False, apart=False, slowest_s=2.0, secured=True,
)  # fmt: skip
SERVICES: Final = (("model", "policy"), ("environment", "till"), ("agent", "tool_loop"))


def mesh_file(folder: Path, certificates: Path, first: Host) -> Path:
    """The mesh's configuration, the same on all hosts."""
    pair = {
        name: [str(certificates / f"{name}.{kind}") for kind in ("pem", "key")]
        for name in ("services", "collector")
    }
    authority = str(certificates / "ca.pem")
    certificate, key = pair["services"]
    consul_tls = {"ca_file": authority, "cert_file": certificate, "key_file": key}
    mesh: dict[str, Any] = {
        "models": {
            "policy": {
                "backend": WORLD.api,
                "url": f"http://{first.address}:{ENDPOINT_PORT}/v1",
                "model": "fake",
                "timeout_s": 8,
                "connect_timeout_s": 1,
            }
        },
        "environments": {
            "till": {
                "use": str(ROOT / "tests" / "chaos" / "till.py") + ":Till",
                "session_idle_s": 6,
                "tool_timeout_s": 3,
            }
        },
        "agents": {
            "tool_loop": {
                "max_steps": 4,
                "model_timeout_s": 9,
                "tool_timeout_s": 5,
                "verify_timeout_s": 5,
                "collect": {"resume_window_s": 8},
            }
        },
        "defaults": {"environment": "till"},
        "mesh": {"drain_s": 5},
        "discovery": {
            "backend": "consul",
            "consul": {"address": f"https://{first.address}:8501", "tls": consul_tls},
        },
        "security": {
            "tls": {"authority": authority, "certificate": certificate, "key": key},
            "identities": {
                "services": {"certificates": ["services"], "may": ["register", "serve"]},
                "collector": {"certificates": ["collector"], "may": ["collect"]},
            },
            "plain_metrics": True,
        },
    }
    path = folder / "mesh.json"
    path.write_text(json.dumps(mesh))
    return path


@dataclass
class Mesh:
    """What runs on the hosts."""

    config: Path
    certificates: Path
    consul: Consul
    services: dict[str, Served]

    @property
    def shown(self) -> list[str]:
        """The options by which a collector shows who it is."""
        own = self.certificates / "collector.pem"
        authority = self.certificates / "ca.pem"
        return ["--ca", str(authority), "--cert", str(own), "--key", str(own.with_suffix(".key"))]


@asynccontextmanager
async def mesh_on(hosts: Sequence[Host], program: str, folder: Path) -> AsyncIterator[Mesh]:
    """Consul and the endpoint on the first host, and all services on each."""
    first = hosts[0]
    certificates = folder / "certificates"
    issue(certificates, ("services", "collector"), [one.address for one in hosts], days=1)
    config = mesh_file(folder, certificates, first)
    async with AsyncExitStack() as stack:
        consul = await stack.enter_async_context(running(program, first, certificates, folder))
        endpoint = Endpoint(
            first.address, ENDPOINT_PORT, WORLD.slowest_s, folder, prefix=first.prefix
        )
        stack.push_async_callback(endpoint.end)
        await endpoint.begin()
        services: dict[str, Served] = {}
        for host in hosts:
            for kind, name in SERVICES:
                label = f"{kind}-{host.namespace}"
                served = await serve(
                    kind, name, "--config", config, "--host", host.address,
                    "--instance", host.namespace,
                    log=folder / f"{label}.log", prefix=host.prefix,
                )  # fmt: skip
                stack.push_async_callback(served.kill)
                services[label] = served
        yield Mesh(config, certificates, consul, services)


@asynccontextmanager
async def partition(
    host: Host, seconds: float, faults: list[dict[str, Any]]
) -> AsyncIterator[None]:
    """Nothing passes for at least so long, nor before what is done meanwhile is over."""
    at = time.monotonic()
    await host.cut_off()
    try:
        yield
        await asyncio.sleep(at + seconds - time.monotonic())
    finally:
        await host.reconnect()
    faults.append(
        {
            "kind": "partition",
            "target": host.namespace,
            "at": at,
            "seconds": time.monotonic() - at,
        }
    )


async def until_listed(mesh: Mesh, hosts: Sequence[Host]) -> None:
    """Until Consul lists the services of these hosts, and no others."""
    wanted = sorted(host.address for host in hosts for _ in SERVICES)
    async with asyncio.timeout(BOUND_S):
        while sorted((await mesh.consul.passing()).values()) != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.2)


async def until_finished(folder: Folder, count: int, collecting: asyncio.Task[None]) -> None:
    """Until the collector said of so many rollouts that they are on disk."""
    async with asyncio.timeout(WITHIN_S):
        while sum(one["what"] == "stored" for one in folder.acknowledged()) < count:
            assert not collecting.done(), "the collection was over before the partition"
            await asyncio.sleep(0.2)


async def test_a_host_is_cut_off_and_comes_back(
    hosts: Sequence[Host], consul: str, tmp_path: Path
) -> None:
    first, second = hosts
    folder = Folder(tmp_path / "run").make()
    folder.write("asked.json", asked(WORLD.tasks, WORLD.repeats, TIMEOUT_S))
    tasks = tmp_path / "tasks.jsonl"
    rows = (json.dumps(Wanted(number).row()) for number in range(WORLD.tasks))
    tasks.write_text("".join(f"{row}\n" for row in rows))
    faults: list[dict[str, Any]] = []
    async with mesh_on(hosts, consul, tmp_path) as mesh:
        await until_listed(mesh, hosts)
        target = [f"consul://{mesh.consul.address}/tool_loop"]
        arguments = arguments_of(WORLD, mesh.config, tasks, folder, target, TIMEOUT_S)
        collecting = Collecting(WORLD, folder, [*arguments, *mesh.shown], prefix=first.prefix)
        run = asyncio.create_task(collecting.run(WITHIN_S))
        try:
            await until_finished(folder, 20, run)
            async with partition(second, SHORT_S, faults):
                pass
            await until_finished(folder, 50, run)
            async with partition(second, LONG_S, faults):
                await until_listed(mesh, [first])
            assert not run.done(), "the collection was over before the partition was"
            await run
        finally:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
            await collecting.end()
        # The other host is listed again, and nothing is left open on either.
        await until_listed(mesh, hosts)
        folder.write("faults.json", faults)
        metrics = {label: one.said["metrics_address"] for label, one in mesh.services.items()}
        folder.write("after.json", await quiet(metrics))
    verdict = await judge(folder.path)
    ends = [(one["code"], one["ended_by"], one["stderr"][-2:]) for one in collecting.sessions]
    assert verdict["violations"] == [], (verdict, ends)
    assert verdict["completed"] + verdict["failed"] == WORLD.rollouts
    print(json.dumps(verdict))
