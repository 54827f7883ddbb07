"""Ray: cells of a mesh as actors of the trainer's own cluster.

    async with placed(config, cells=8, resources={"num_cpus": 2}) as addresses:
        async for group in gymmesh.collect(addresses, tasks): ...

Each actor starts the services of a configuration on its node (as `gym-cli up` does, in one process)
and returns its agent's address. The actors' names in Ray begin with `gymmesh-cell-`.

A cell that dies is not restarted. Its rollouts are retried at the other cells, or fail
(`max_attempts`). `max_restarts` is not supported, because Ray's new actor would have another
address.

`actor_number` is for the hooks of trainers whose processes are actors of Ray.
"""

from __future__ import annotations

import asyncio
import re
import uuid
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import ray

from gymmesh_client import UserError
from gymmesh_mesh import MeshConfig, up
from gymmesh_mesh.config import exposed

__all__ = ["Cell", "actor_number", "placed"]


class Cell:
    """One cell; made into an actor by `placed`.

    Args:
        config: the mesh, as JSON.
        insecure: whether other nodes may call it without certificates.
    """

    def __init__(self, config: bytes, *, insecure: bool) -> None:
        found = msgspec.json.decode(config, type=MeshConfig)
        self._config = exposed(found) if insecure else found
        self._stack = AsyncExitStack()
        self._pids: list[int] = []

    async def pids(self) -> list[int]:
        """The services' processes on the actor's node; they end in order when the actor dies."""
        return self._pids

    async def start(self, host: str | None = None) -> str:
        """Start the services; the agent's address. host: None: this node's."""
        listen = host or ray.util.get_node_ip_address()
        settings = msgspec.structs.replace(self._config.mesh, layout="embedded", host=listen)
        config = msgspec.structs.replace(self._config, mesh=settings)
        services = await self._stack.enter_async_context(up(config))
        self._pids = [one.pid for one in services.infos]
        return services.address_of("agent", config.defaults.agent)

    async def stop(self) -> None:
        """End the services."""
        await self._stack.aclose()


@asynccontextmanager
async def placed(
    config: MeshConfig,
    *,
    cells: int,
    resources: Mapping[str, Any] | None = None,
    host: str | None = None,
    insecure: bool = False,
) -> AsyncIterator[list[str]]:
    """Place cells in the cluster that `ray.init` connected to. Yields their agents' addresses.

    Args:
        cells: the number of cells.
        resources: options of the actors, as `{"num_cpus": 2}`.
        host: the address at which each cell listens; None: its node's address.
        insecure: allow calls from other nodes without certificates, on a trusted network.

    Raises UserError if Ray is not connected, or an option is not supported.
    """
    options = dict(resources or {})
    for key in ("max_restarts", "name"):
        if key in options:
            raise UserError(f"resources: cells don't support {key!r}; see gymmesh_trainers.ray")
    if not ray.is_initialized():
        raise UserError("Ray is not connected. Call ray.init first, or run in a job of the cluster")
    encoded = msgspec.json.encode(config)
    actor = ray.remote(Cell)
    run = uuid.uuid4().hex[:8]
    placed_cells = [
        actor.options(name=f"gymmesh-cell-{run}-{number}", **options).remote(
            encoded, insecure=insecure
        )
        for number in range(cells)
    ]
    try:
        yield list(await asyncio.gather(*(one.start.remote(host) for one in placed_cells)))
    finally:
        await asyncio.gather(*(one.stop.remote() for one in placed_cells), return_exceptions=True)
        for one in placed_cells:
            ray.kill(one)


def actor_number() -> int:
    """A number of the actor that calls this, below 65,536: the one in its name (veRL has workers
    called `agent_loop_worker_3_…`), else one made of its id. 0: the caller is no actor.
    """
    if not ray.is_initialized():
        return 0
    context = ray.get_runtime_context()
    actor = context.get_actor_id()
    if not actor:
        return 0
    named = re.search(r"worker_(\d+)", context.get_actor_name() or "")
    return int(named[1]) if named else zlib.crc32(actor.encode()) & 0xFFFF
