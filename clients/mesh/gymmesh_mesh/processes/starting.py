"""The services of a configuration as processes, by its layout.

All processes start at once. Each gets the registry's address when the registry is up, or registers
itself in Consul. If a process fails to start, or dies more often than `mesh.restarts`, all
processes are stopped with a clear error: no incomplete mesh keeps running.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from gymmesh_mesh.compose import serve_options
from gymmesh_mesh.config import MeshConfig
from gymmesh_mesh.layout import in_consul, plan_processes
from gymmesh_mesh.processes.process import ServiceInfo, StartError
from gymmesh_mesh.processes.restarting import RestartedProcess, ready_seconds
from gymmesh_runtime.addresses import METRICS_HARM, SERVICES_HARM, TOOLS_HARM, advertised, exposure
from gymmesh_runtime.security import Credentials, SecurityConfig, check_exposure, check_plain
from gymmesh_runtime.timers import cancel_and_wait

_log = logging.getLogger("gymmesh.mesh")


class Up:
    """A running mesh of processes."""

    def __init__(
        self, processes: list[RestartedProcess], beside: Sequence[ServiceInfo] = ()
    ) -> None:
        self._processes = processes
        self._beside = beside

    @property
    def infos(self) -> list[ServiceInfo]:
        """The services as they were last started, and Prometheus if it was started."""
        return [*(info for process in self._processes for info in process.infos), *self._beside]

    def address_of(self, kind: str, name: str = "") -> str:
        """The address of the first service of this kind and, if given, this name. Raises
        LookupError.
        """
        for info in self.infos:
            if info.kind == kind and info.address and (not name or info.name == name):
                return info.address
        raise LookupError(f"no {kind} service {name!r} is running")

    async def wait_for_death(self) -> str:
        """Restart processes that die. If a process died too often, return a paragraph that explains
        it.
        """
        deaths = [asyncio.create_task(one.death()) for one in self._processes]
        try:
            done, _ = await asyncio.wait(deaths, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            await cancel_and_wait(*deaths)


@asynccontextmanager
async def up(
    config: MeshConfig,
    *,
    host: str | None = None,
    echo: Callable[[str], None] = lambda line: None,
    prometheus: str | None = None,
) -> AsyncIterator[Up]:
    """Start the processes and wait until all services are SERVING.

    ``echo`` receives each line of the services' logs. ``prometheus`` is a program that is started
    beside the mesh, on this machine, to monitor it. Raises StartError. Raises ConfigError if the
    address for others is not known, if others could reach the services without security, or if the
    certificates cannot be used.
    """
    if prometheus is not None:
        from gymmesh_mesh.processes.prometheus import observed

        config = observed(config, prometheus)
    host = host or config.mesh.host
    _check_exposure(config, host)
    credentials = Credentials(config.security)
    credentials.server()
    advertise_host = advertised(host, config.mesh.advertise_host)
    for sentence in _exposures(config, host):
        _log.warning("%s", sentence)  # the workers' own logs may not be shown
    async with AsyncExitStack() as stack:
        # Workers log a replaced certificate that cannot be used; here it is always shown.
        refreshing = asyncio.create_task(credentials.refresh_for_ever())
        stack.push_async_callback(cancel_and_wait, refreshing)
        suffix = await _prepare_registry(stack, config)
        processes: list[RestartedProcess] = []
        for plan in plan_processes(config, suffix):
            process = RestartedProcess(plan, config, echo)
            stack.push_async_callback(process.stop)
            await process.start()
            processes.append(process)
        ready_s = ready_seconds(config)
        try:
            async with asyncio.timeout(ready_s):
                await _serve_all(processes, config, host, advertise_host)
        except TimeoutError:
            raise StartError(
                f"the services were not ready within {ready_s:.0f} s (mesh.ready_s)"
            ) from None
        beside: list[ServiceInfo] = []
        if prometheus is not None:
            from gymmesh_mesh.processes.prometheus import prometheus as run_beside

            one = run_beside(config.discovery.http_sd, prometheus)
            beside.append(await stack.enter_async_context(one))
        yield Up(processes, beside)


def _check_exposure(config: MeshConfig, host: str) -> None:
    """Raises ConfigError for a mesh that others could reach without security."""
    check_exposure(host, config.security)
    if config.discovery.http_sd:
        http_sd_host = config.discovery.http_sd.rpartition(":")[0].strip("[]")
        check_plain(http_sd_host, config.security, "HTTP service discovery")


def _exposures(config: MeshConfig, host: str) -> list[str]:
    """A sentence for each thing of a mesh that other machines could reach."""
    found = []
    security = config.security or SecurityConfig()
    if security.tls is None:
        found.append(exposure("the services listen", host, SERVICES_HARM))
    if config.mesh.metrics and not security.encrypts_metrics:
        found.append(exposure("metrics are served", host, METRICS_HARM))
    for name, environment in config.environments.items():
        if environment.mcp is not None:
            what = f"the tools of environment {name} are offered over MCP"
            found.append(exposure(what, environment.mcp.host, TOOLS_HARM, tokens=True))
        if environment.protocols is not None:
            what = f"environment {name} is served with other frameworks' protocols"
            found.append(exposure(what, environment.protocols.host, TOOLS_HARM, tokens=True))
    return [sentence for sentence in found if sentence]


async def _prepare_registry(stack: AsyncExitStack, config: MeshConfig) -> str:
    """Have the registry that lies outside of the mesh ready; returns the suffix of instance ids."""
    found = config.discovery
    if in_consul(config):
        from gymmesh_mesh.processes.consul_agent import consul_agent

        agent = consul_agent(found.consul, start=found.start, binary=found.binary)
        await stack.enter_async_context(agent)
        return secrets.token_hex(3)  # other meshes may share the Consul
    if found.backend == "kubernetes":
        from gymmesh_discovery.backends.kubernetes import problem_of

        problem = await problem_of(found.kubernetes)
        if problem is not None:
            raise StartError(problem.message)
        # Kubernetes lists a pod's services under its UID, and they must have it in their names.
        return os.environ.get("POD_UID", "0")
    return "0"


async def _serve_all(
    processes: list[RestartedProcess], config: MeshConfig, host: str, advertise_host: str
) -> None:
    options = serve_options(config, host, advertise_host)
    if not in_consul(config):
        registry, *processes = processes
        infos = await registry.serve(options)
        options = replace(options, discovery_address=infos[0].address)
    await asyncio.gather(*(process.serve(options) for process in processes))


async def run_up(
    config: MeshConfig,
    *,
    host: str | None = None,
    on_ready: Callable[[list[ServiceInfo]], None],
    echo: Callable[[str], None] = lambda line: None,
    prometheus: str | None = None,
) -> None:
    """Run a mesh of processes until SIGINT or SIGTERM, then stop it in reverse order.

    ``prometheus`` is a program to start beside the mesh, as for `up`. Raises StartError if a
    service does not start or dies, and ConfigError as `up` does.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    stopped = asyncio.create_task(stop.wait())

    async def until_death() -> None:
        async with up(config, host=host, echo=echo, prometheus=prometheus) as mesh:
            on_ready(mesh.infos)
            raise StartError(await mesh.wait_for_death())

    running = asyncio.create_task(until_death())
    try:
        await asyncio.wait({stopped, running}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_and_wait(stopped, running)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    if not running.cancelled():
        running.result()  # raises StartError
