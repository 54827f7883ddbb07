"""One seed: a world comes up, is hurt while a run goes on, heals, and is judged."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from gymmesh_cli.services.development_certificates import issue
from gymmesh_mesh import MeshConfig
from gymmesh_mesh.layout import ProcessPlan, plan_processes
from gymmesh_responses import loads
from tests.chaos.collecting import Collecting, arguments_of
from tests.chaos.folder import Folder
from tests.chaos.inflict import Inflicting
from tests.chaos.places import Apart
from tests.chaos.plan import Fault, World
from tests.chaos.processes import ROOT, Endpoint, Worker
from tests.chaos.till_tasks import Wanted, asked
from tests.support.ports import free_port
from tests.support.proxy import Proxy

TIMEOUT_S: Final = 20.0
_IDLE_S: Final = 6
# After which sessions that lost their agent are swept, and a run's events let go.
_QUIET_S: Final = 25.0
_JUDGE_S: Final = 60.0
_GAUGES: Final = ("gymmesh_sessions_open", "gymmesh_rollouts_in_flight")


@dataclass
class Result:
    """What came of a seed.

    Attributes:
        verdict: the judge's.
        faults: what was done; `missed`: what could not be.
        notes: what this machine could not do.
        wall_s: seconds that it took.
    """

    world: World
    verdict: dict[str, Any]
    faults: list[dict[str, Any]]
    missed: list[str]
    notes: list[str] = field(default_factory=list)
    sessions: list[dict[str, Any]] = field(default_factory=list)
    wall_s: float = 0.0

    @property
    def violations(self) -> list[str]:
        """What the judge found wrong."""
        found: list[str] = self.verdict["violations"]
        return found


async def run_seed(
    world: World,
    schedule: Sequence[Fault],
    path: Path,
    *,
    within_s: float = 180.0,
    plant: str | None = None,
) -> Result:
    """Carry a seed out in a folder; `plant` puts a bug into the collector."""
    begun = time.monotonic()
    folder = Folder(path).make()
    notes: list[str] = []
    folder.write("asked.json", asked(world.tasks, world.repeats, TIMEOUT_S))
    tasks = path / "tasks.jsonl"
    rows = (json.dumps(Wanted(number).row()) for number in range(world.tasks))
    tasks.write_text("".join(f"{row}\n" for row in rows))
    async with _world(world, path, notes) as up:
        agents = [wire.address for wire in up.to_agents]
        arguments = arguments_of(world, up.config, tasks, folder, agents, TIMEOUT_S)
        arguments = [*arguments, *up.shown]
        collecting = Collecting(world, folder, arguments, plant)
        if not await collecting.disk.make():
            notes.append(
                "a separate disk is not available, so the test simulates a full disk with a limit "
                "on file sizes"
            )
        inflicting = Inflicting(
            collecting, up.services, up.endpoint, up.to_endpoint, up.to_agents, up.apart
        )
        try:
            following = asyncio.create_task(inflicting.follow(schedule))
            try:
                await collecting.run(within_s)
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
            folder.write("faults.json", inflicting.done)
            found = {name: one.metrics_address for name, one in up.services.items()}
            folder.write("after.json", await quiet(found))
        finally:
            await collecting.end()
            collecting.disk.empty()
            await collecting.disk.remove()
    verdict = await judge(path)
    result = Result(world, verdict, inflicting.done, inflicting.missed, notes, collecting.sessions)
    result.wall_s = time.monotonic() - begun
    return result


@dataclass
class _Up:
    config: Path
    services: dict[str, Worker]
    endpoint: Endpoint
    to_endpoint: Proxy
    to_agents: list[Proxy]
    apart: Apart | None
    shown: list[str]  # by which the collector shows who it is


@asynccontextmanager
async def _world(world: World, path: Path, notes: list[str]) -> AsyncIterator[_Up]:
    async with AsyncExitStack() as stack:
        apart = await _apart(world, stack, notes)
        host = "127.0.0.1" if apart is None else apart.here
        security, shown = _security(world, path, () if apart is None else (apart.here, apart.there))
        taken: set[int] = set()
        endpoint = Endpoint("127.0.0.1", free_port(taken=taken), world.slowest_s, path)
        stack.push_async_callback(endpoint.end)
        served = int(endpoint.arguments[1])
        to_endpoint = Proxy(served, host=host, port=free_port(host, taken))
        await stack.enter_async_context(to_endpoint)
        config = _config(world, f"http://{to_endpoint.address}/v1")
        file = path / "mesh.json"
        file.write_text(json.dumps(config))
        services, to_agents, registry = {}, [], ""
        for plan in plan_processes(msgspec.convert(config, MeshConfig)):
            far = apart is not None and plan.name == world.far
            at = apart.there if far and apart is not None else host
            ports = {spec: free_port(taken=taken) for spec in sorted(plan.exposed)}
            registry = registry or f"{at}:{ports[plan.specs[0].instance_id]}"
            options = _options(at, ports, plan, registry, world) | {"security": security}
            prefix = apart.prefix if far and apart is not None else ()
            worker = Worker(plan, options, path, prefix=prefix)
            services[plan.name] = worker
            stack.push_async_callback(worker.end)
            for spec in plan.specs:
                if spec.kind == "agent":
                    port = ports[spec.instance_id]
                    wire = Proxy(port, to_host=at, port=free_port(taken=taken))
                    to_agents.append(await stack.enter_async_context(wire))
        await endpoint.begin()
        first, *others = services.values()
        await first.begin()
        await asyncio.gather(*(worker.begin() for worker in others))
        yield _Up(file, services, endpoint, to_endpoint, to_agents, apart, shown)


def _security(world: World, path: Path, hosts: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """What the services are started with, and the options of a collector that they let in."""
    if not world.secured:
        return {"insecure": True}, []  # namespaces have addresses of their own
    certificates = path / "certificates"
    issue(certificates, ("services", "collector"), hosts, days=1)
    authority = str(certificates / "ca.pem")
    files = {
        name: [str(certificates / f"{name}.{kind}") for kind in ("pem", "key")]
        for name in ("services", "collector")
    }
    security = {
        "tls": {
            "authority": authority,
            "certificate": files["services"][0],
            "key": files["services"][1],
        },
        "identities": {
            "services": {"certificates": ["services"], "may": ["register", "serve"]},
            "collector": {"certificates": ["collector"], "may": ["collect"]},
        },
        "plain_metrics": True,
    }
    certificate, key = files["collector"]
    return security, ["--ca", authority, "--cert", certificate, "--key", key]


async def _apart(world: World, stack: AsyncExitStack, notes: list[str]) -> Apart | None:
    if not world.apart:
        return None
    apart = Apart(world.seed)
    if not await apart.make():
        notes.append(
            "NETWORK NAMESPACES ARE NOT AVAILABLE, so the test skips partitions. Run the test as "
            "root, with iproute2 installed"
        )
        return None
    stack.push_async_callback(apart.remove)
    return apart


def _options(
    host: str, ports: dict[str, int], plan: ProcessPlan, registry: str, world: World
) -> dict[str, Any]:
    options = {"host": host, "ports": ports, "drain_s": 1.0, "transport": world.transport}
    alone = plan.specs[0].kind == "discovery"
    return options if alone else {**options, "discovery_address": registry}


def _config(world: World, url: str) -> dict[str, Any]:
    return {
        "models": {
            "policy": {
                "backend": world.api,
                "url": url,
                "model": "fake",
                "timeout_s": 5,
                "connect_timeout_s": 1,
            }
        },
        "environments": {
            "till": {
                "use": str(ROOT / "tests" / "chaos" / "till.py") + ":Till",
                "session_idle_s": _IDLE_S,
                "tool_timeout_s": 3,
            }
        },
        "agents": {
            "tool_loop": {
                "max_steps": 4,
                "model_timeout_s": 6,
                "tool_timeout_s": 5,
                "verify_timeout_s": 5,
                "collect": {"resume_window_s": 8},
            }
        },
        "defaults": {"environment": "till"},
        "mesh": {"layout": world.layout, "cells": 2, "transport": world.transport},
    }


async def quiet(services: Mapping[str, str]) -> dict[str, float]:
    """The gauges of services, whose addresses of metrics are given by name, once they are 0, or
    when they should long be.
    """
    until = time.monotonic() + _QUIET_S
    while True:
        found = [await asyncio.to_thread(_gauges, *one) for one in services.items()]
        gauges = {name: value for one in found for name, value in one.items()}
        if not any(gauges.values()) or time.monotonic() > until:
            return gauges
        await asyncio.sleep(0.5)


def _gauges(service: str, address: str) -> dict[str, float]:
    found: dict[str, float] = {}
    url = f"http://{address}/metrics"
    try:
        with urllib.request.urlopen(url, timeout=2.0) as reply:
            lines = reply.read().decode().splitlines()
    except OSError:
        return {f"{service}: unreachable": 1.0}
    for line in lines:
        if line.startswith(_GAUGES):
            name, _, value = line.rpartition(" ")
            found[f"{service}: {name}"] = float(value)
    return found


async def judge(path: Path) -> dict[str, Any]:
    """What the judge says of a run's folder."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.chaos.judge", str(path),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    stdout = stderr = b""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_JUDGE_S):
            stdout, stderr = await process.communicate()
    if process.returncode is None:
        process.kill()
        await process.wait()
    if not stdout:
        words = stderr.decode(errors="replace").strip().splitlines()[-3:]
        return {"violations": [f"the judge failed: {' | '.join(words)}"], "completed": 0}
    verdict: dict[str, Any] = loads(stdout)
    return verdict
