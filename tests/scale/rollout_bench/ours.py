"""The same work through a mesh and the collector, every event delivered, rows and journal on disk.

    python -m tests.scale.rollout_bench.ours URL embedded|cell|cells|mesh|plain|mtls

`cell` has as many cells as there are by default on this machine, and `cells` has `CELLS` of them;
`plain` is `mesh` with plain RPCs between its processes, and `mtls` is `mesh` over mutual TLS with
identities, each call authorised. The collector is this process; with
`embedded` the services are, too.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_cli.services.development_certificates import issue
from gymmesh_client import CollectOptions, Collector, OutputFiles, RunIdentity, RunOutput
from gymmesh_mesh import Mesh, MeshConfig, embedded, remote, up
from gymmesh_mesh.config import Defaults, MeshSettings
from gymmesh_model.config import ModelConfig
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_responses import params_from_json
from gymmesh_runtime.security import IdentityConfig, SecurityConfig, TlsConfig
from gymmesh_runtime.serving.loop import run
from tests.scale.rollout_bench import talk

HERE = Path(__file__).parent
CELLS = 2
_MOST = 20_000  # model calls in flight: no limit of ours is measured here


def task() -> rollout_pb2.Task:
    """The one task."""
    params = {"input": [{"role": "user", "content": "What is 2 + 3?"}]}
    return rollout_pb2.Task(
        task_id="sum",
        environment="adder",
        agent="tool_loop",
        params=params_from_json(params),
        payload_json=b'{"wanted": "5"}',
    )


def configuration(url: str, layout: str, most: int = _MOST) -> MeshConfig:
    """A mesh with the adder and a model at `url`."""
    special: dict[str, dict[str, Any]] = {
        "plain": {"layout": "mesh", "transport": "plain"},
        "cells": {"layout": "cell", "cells": CELLS},
        "mtls": {"layout": "mesh"},
    }
    settings = special.get(layout, {"layout": layout})
    policy = ModelConfig(backend="responses", url=url, model="fake", max_concurrency=most)
    adder = EnvironmentConfig(use=f"{HERE / 'adder.py'}:Adder", session_limit=0)
    return MeshConfig(
        models={"policy": policy},
        environments={"adder": adder},
        defaults=Defaults(environment="adder"),
        mesh=MeshSettings(**settings),
    )


def secured(folder: Path) -> tuple[SecurityConfig, SecurityConfig]:
    """What the services and the collector show one another, and who may do what."""
    names = ("services", "collector")
    issue(folder, names, (), days=1)
    services, collector = (
        TlsConfig(
            authority=str(folder / "ca.pem"),
            certificate=str(folder / f"{name}.pem"),
            key=str(folder / f"{name}.key"),
        )
        for name in names
    )
    identities = {
        "services": IdentityConfig(certificates=("services",), may=("register", "serve")),
        "collector": IdentityConfig(certificates=("collector",), may=("collect",)),
    }
    return SecurityConfig(tls=services, identities=identities), SecurityConfig(tls=collector)


@asynccontextmanager
async def opened(
    config: MeshConfig, collector: SecurityConfig | None = None
) -> AsyncIterator[Mesh]:
    """The mesh of a configuration, in this process or reached from it.

    ``collector``: what the collector shows it.
    """
    if config.mesh.layout == "embedded":
        async with embedded(config) as mesh:
            yield mesh
        return
    async with up(config) as running:
        agents = [one.address for one in running.infos if one.kind == "agent" and one.address]
        async with remote(agents, config.defaults, security=collector) as mesh:
            yield mesh


async def collect(
    mesh: Mesh,
    folder: Path,
    rollouts: int,
    in_flight: int,
    *,
    of: rollout_pb2.Task | None = None,
) -> None:
    """Collects so many rollouts of a task, the usual one unless given; every one must complete."""
    files = OutputFiles(folder / f"{len(list(folder.iterdir()))}.jsonl")
    output = RunOutput.open(files, RunIdentity("", ""))
    options = CollectOptions(repeats=rollouts, concurrency=in_flight)
    connect = partial(mesh.agents.connect, held=True)
    collector = Collector(connect, output, options, stored=mesh.agents.stored)
    tally = await collector.run([of or task()])
    if tally.completed != rollouts:
        raise RuntimeError(f"not all completed: {tally}")


async def main(url: str, layout: str) -> None:
    """Serves the bench until its input ends."""
    say = talk.take_stdout()
    config, collector = configuration(url, layout), None
    with tempfile.TemporaryDirectory() as certificates, tempfile.TemporaryDirectory() as folder:
        if layout == "mtls":
            services, collector = secured(Path(certificates))
            config = msgspec.structs.replace(config, security=services)
        async with opened(config, collector) as mesh:
            await talk.answer(say, {}, partial(collect, mesh, Path(folder)))


if __name__ == "__main__":
    run(main(sys.argv[1], sys.argv[2]))
