"""The Consul agent of a mesh: an existing one, or a development agent started for it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from gymmesh_discovery.backends.consul import make_client
from gymmesh_discovery.config import ConsulConfig, split_address
from gymmesh_mesh.processes.process import StartError, end, start_beside
from gymmesh_runtime.addresses import free_port
from gymmesh_runtime.errors import MeshError

_log = logging.getLogger("gymmesh.mesh")

_CALL_S: Final = 2.0
_START_S: Final = 30.0
_STOP_S: Final = 5.0


@asynccontextmanager
async def consul_agent(config: ConsulConfig, *, start: bool, binary: str) -> AsyncIterator[None]:
    """A context in which a Consul agent answers at the configured address.

    With ``start``, if no agent answers, `consul agent -dev` is started from ``binary``, and ended
    when the context ends. Raises StartError.
    """
    problem = await consul_problem(config)
    if problem is None:
        yield
        return
    if not start:
        raise StartError(
            f"{problem}. Start a Consul agent at this address, or use --discovery consul"
        )
    process = await _start(config, binary)
    try:
        await _until_ready(config, process)
        _log.info("started a Consul development agent at %s", config.address)
        yield
    finally:
        await end(process, _STOP_S)


async def consul_problem(config: ConsulConfig) -> str | None:
    """The reason why no Consul with a leader answers; None if one answers."""
    client = make_client(config)
    try:
        answer = await client.read("/v1/status/leader", timeout=_CALL_S)
        leader = answer.json()
    except MeshError as error:
        return error.message
    except ValueError:
        return client.strange("its answer is not JSON").message
    finally:
        await client.close()
    return (
        None if leader and isinstance(leader, str) else f"Consul at {client.address} has no leader"
    )


async def _start(config: ConsulConfig, binary: str) -> Process:
    scheme, host, port = split_address(config.address)
    if scheme != "http" or host not in ("127.0.0.1", "localhost"):
        raise StartError(
            f"no Consul answers at {config.address}, and gym-cli can start a Consul "
            f"development agent only on 127.0.0.1. Start Consul at {config.address}, or "
            "change discovery.consul.address"
        )
    program = shutil.which(binary)
    if program is None:
        raise StartError(
            f"no Consul answers at {config.address}, and the program '{binary}' does not exist. "
            "Install Consul, or pass its path with --consul-binary"
        )
    ports = {port}
    try:
        while len(ports) < 3:
            ports.add(free_port("127.0.0.1"))
    except OSError as error:
        raise StartError(f"no port of 127.0.0.1 is free: {error.strerror}") from None
    server_port, serf_port = ports - {port}
    return await start_beside(
        program, "agent", "-dev", "-bind=127.0.0.1", "-client=127.0.0.1", "-log-level=warn",
        f"-http-port={port}", "-dns-port=-1", "-grpc-port=-1", "-grpc-tls-port=-1",
        f"-server-port={server_port}", f"-serf-lan-port={serf_port}", "-serf-wan-port=-1",
    )  # fmt: skip


async def _until_ready(config: ConsulConfig, process: Process) -> None:
    problem: str | None = ""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_START_S):
            while problem is not None and process.returncode is None:
                await asyncio.sleep(0.1)
                problem = await consul_problem(config)
    if process.returncode is not None:
        raise StartError(f"the Consul agent ended with status {process.returncode} while starting")
    if problem is not None:
        raise StartError(f"the Consul agent was not ready within {_START_S:.0f} s: {problem}")
