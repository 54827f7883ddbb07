"""The services of a configuration as processes, as its layout has it.

All processes start at once; each gets the registry's address when that is up, or registers in
Consul by itself. One that fails to start, or dies more often than `mesh.restarts`, takes the others
down with a clear error: a mesh that lost a service is not left half standing.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import os
import secrets
import signal
import sys
from asyncio.subprocess import Process
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from gymmesh_mesh.compose import ServiceSpec
from gymmesh_mesh.config import MeshConfig
from gymmesh_mesh.layout import ProcessPlan, in_consul, plan_processes
from gymmesh_runtime.advertised import advertised
from gymmesh_runtime.listening import METRICS_HARM, SERVICES_HARM, TOOLS_HARM, exposure
from gymmesh_runtime.logs import LogFormat
from gymmesh_runtime.security import SecurityConfig
from gymmesh_runtime.security.credentials import Credentials
from gymmesh_runtime.security.exposure import check_exposure, check_plain

_log = logging.getLogger("gymmesh.mesh")

_LOG_TAIL: Final = 20
_KILL_AFTER_S: Final = 5.0
_FIRST_RESTART_S: Final = 0.5
_LONGEST_RESTART_S: Final = 30.0
# What a service needs besides loading a model; the model's own words on a failure come first.
_LOADED_S: Final = 30.0


class StartError(Exception):
    """A service could not be started, or died; the message says which and why."""


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """A running service: addresses are host and port, or empty.

    One without an address is called from its own process alone. `mcp_url`: where an
    environment's tools are offered over MCP; or empty.
    """

    kind: str
    name: str
    address: str
    metrics_address: str
    pid: int
    mcp_url: str = ""


class _Worker:
    """One process: started, told, heard and stopped."""

    def __init__(self, plan: ProcessPlan, process: Process, echo: Callable[[str], None]) -> None:
        self.plan = plan
        self.process = process
        self._tail: deque[str] = deque(maxlen=_LOG_TAIL)
        self._log = asyncio.create_task(self._follow_log(echo))

    @classmethod
    async def start(
        cls, plan: ProcessPlan, log_format: LogFormat, echo: Callable[[str], None]
    ) -> _Worker:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gymmesh_mesh.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # Ctrl-C in the terminal is for the parent, which then stops its workers in order.
            start_new_session=True,
        )  # fmt: skip
        worker = cls(plan, process, echo)
        services = [
            {
                "kind": spec.kind,
                "name": spec.name,
                "instance_id": spec.instance_id,
                "config": base64.b64encode(spec.config_json).decode(),
            }
            for spec in plan.specs
        ]
        worker._tell(
            {"services": services, "exposed": sorted(plan.exposed), "log_format": log_format}
        )
        return worker

    async def serve(self, options: dict[str, Any]) -> list[ServiceInfo]:
        """Tells the worker how to serve and waits for it to be SERVING. Raises StartError."""
        self._tell({**options, "ports": dict(self.plan.ports)})
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        answer = json.loads(line) if line else {}
        if "ready" not in answer:
            raise StartError(await self.obituary(answer.get("failed")))
        ready = answer["ready"]
        return [_info(spec, ready[spec.instance_id], self.process.pid) for spec in self.plan.specs]

    async def obituary(self, reason: str | None = None) -> str:
        """One paragraph on why the process is not running."""
        specs = self.plan.specs
        title = f"the process '{self.plan.name}'"
        if len(specs) == 1:
            title = f"the {specs[0].kind} service '{specs[0].name}'"
        if reason:
            return f"{title} could not start: {reason}"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self.process.wait()
                await asyncio.shield(self._log)
        tail = "\n".join(self._tail) or "(it logged nothing)"
        return f"{title} ended with status {self.process.returncode}; the end of its log:\n{tail}"

    async def stop(self, drain_s: float) -> None:
        """SIGTERM, then SIGKILL when it does not end in time."""
        if self.process.returncode is None:
            self.process.terminate()
            try:
                await asyncio.wait_for(self.process.wait(), drain_s + _KILL_AFTER_S)
            except TimeoutError:
                self.process.kill()
                await self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        self._log.cancel()
        await asyncio.gather(self._log, return_exceptions=True)

    def _tell(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _follow_log(self, echo: Callable[[str], None]) -> None:
        assert self.process.stderr is not None
        while True:
            try:
                line = await self.process.stderr.readline()
            except ValueError:  # longer than the reader's limit, which drops it
                line = b"(a line of the log was too long to show)\n"
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            self._tail.append(text)
            # A line of JSON says itself where it is from.
            echo(text if text.startswith("{") else f"[{self.plan.name}] {text}")


def _info(spec: ServiceSpec, where: dict[str, str], pid: int) -> ServiceInfo:
    metrics, mcp_url = where["metrics_address"], where["mcp_url"]
    return ServiceInfo(spec.kind, spec.name, where["address"], metrics, pid, mcp_url)


def _ignore(line: str) -> None:
    """Drops a line of a service's log, which the error keeps the tail of anyway."""


class _Slot:
    """The place of one process, in which it is started again when it dies.

    It keeps its ports, so that those who know its addresses find it again, and its instance ids:
    the registry takes the same service at the same address for one that was started again.
    """

    def __init__(self, plan: ProcessPlan, config: MeshConfig, echo: Callable[[str], None]) -> None:
        self._plan = plan
        self._config = config
        self._echo = echo
        self._options: dict[str, Any] = {}
        self._worker: _Worker | None = None
        self.infos: list[ServiceInfo] = []

    async def start(self) -> None:
        """Starts the process."""
        log_format = self._config.mesh.log_format
        self._worker = await _Worker.start(self._plan, log_format, self._echo)

    async def serve(self, options: dict[str, Any]) -> list[ServiceInfo]:
        """Waits for its services to be SERVING. Raises StartError."""
        assert self._worker is not None
        infos = await self._worker.serve(options)
        ports = {
            spec.instance_id: int(info.address.rpartition(":")[2])
            for spec, info in zip(self._plan.specs, infos, strict=True)
            if info.address
        }
        self._plan = replace(self._plan, ports=ports)
        self._options = options
        inner = in_consul(self._config)
        self.infos = [one for one in infos if one.address or one.kind != "discovery" or not inner]
        return self.infos

    async def death(self) -> str:
        """Starts it again each time that it dies, `mesh.restarts` times; then says why it died."""
        limit = self._config.mesh.restarts
        for restart in range(limit + 1):
            assert self._worker is not None
            await self._worker.process.wait()
            obituary = await self._worker.obituary()
            if restart == limit:
                break
            pause = min(_FIRST_RESTART_S * 2.0**restart, _LONGEST_RESTART_S)
            _log.warning("%s\nrestart %d of %d in %g s", obituary, restart + 1, limit, pause)
            await asyncio.sleep(pause)
            await self._start_again()
        return obituary if not limit else f"{obituary}\nit was restarted {limit} times"

    async def stop(self) -> None:
        """Ends the process."""
        if self._worker is not None:
            await self._worker.stop(self._config.mesh.drain_s)

    async def _start_again(self) -> None:
        """Starts the process anew; one that does not come up is dead again."""
        await self.stop()
        await self.start()
        assert self._worker is not None
        ready_s = _ready_seconds(self._config)
        try:
            async with asyncio.timeout(ready_s):
                await self.serve(self._options)
        except StartError as error:
            _log.warning("%s", error)
            await self._worker.stop(0.0)
        except TimeoutError:
            _log.warning("'%s' was not ready again within %.0f s", self._plan.name, ready_s)
            await self._worker.stop(0.0)


class Up:
    """A running mesh of processes."""

    def __init__(self, slots: list[_Slot], beside: Sequence[ServiceInfo] = ()) -> None:
        self._slots = slots
        self._beside = beside

    @property
    def infos(self) -> list[ServiceInfo]:
        """The services, as they were last started, and Prometheus where it was asked for."""
        return [*(info for slot in self._slots for info in slot.infos), *self._beside]

    def address_of(self, kind: str, name: str = "") -> str:
        """The address of the first service of a kind (and name). Raises LookupError."""
        for info in self.infos:
            if info.kind == kind and info.address and (not name or info.name == name):
                return info.address
        raise LookupError(f"no {kind} service {name!r} is up")

    async def wait_for_death(self) -> str:
        """Starts those again that die, and returns, when one died too often, a paragraph on it."""
        deaths = [asyncio.create_task(one.death()) for one in self._slots]
        try:
            done, _ = await asyncio.wait(deaths, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for task in deaths:
                task.cancel()
            await asyncio.gather(*deaths, return_exceptions=True)


def _exposures(config: MeshConfig, host: str) -> list[str]:
    """What others than this machine could reach of a mesh, a sentence for each; none: nothing."""
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
    return [sentence for sentence in found if sentence]


@asynccontextmanager
async def up(
    config: MeshConfig,
    *,
    host: str | None = None,
    echo: Callable[[str], None] = _ignore,
    prometheus: str | None = None,
) -> AsyncIterator[Up]:
    """Starts the processes and waits until all services are SERVING.

    ``echo`` is given each line of the services' logs. ``prometheus`` is a program that is started
    beside them, on this machine alone, and watches them. Raises StartError, and ConfigError where
    what others connect to cannot be told, the services would be open to others, or their
    certificates cannot be used.
    """
    if prometheus is not None:
        config = _observed(config, prometheus)
    settings = config.mesh
    host = host or settings.host
    check_exposure(host, config.security)
    if config.discovery.http_sd:
        http_sd_host = config.discovery.http_sd.rpartition(":")[0].strip("[]")
        check_plain(http_sd_host, config.security, "HTTP service discovery")
    Credentials(config.security).server()
    advertise_host = advertised(host, settings.advertise_host)
    for sentence in _exposures(config, host):
        _log.warning("%s", sentence)  # the workers' own logs may be shown to nobody
    async with AsyncExitStack() as stack:
        suffix = "0"
        if in_consul(config):
            await _enter_consul(stack, config)
            suffix = secrets.token_hex(3)  # other meshes may share the Consul
        elif config.discovery.backend == "kubernetes":
            await _check_kubernetes(config)
            # Kubernetes lists a pod's services under its UID, and they are to call themselves so.
            suffix = os.environ.get("POD_UID", "0")
        slots = []
        for plan in plan_processes(config, suffix):
            slot = _Slot(plan, config, echo)
            stack.push_async_callback(slot.stop)
            await slot.start()
            slots.append(slot)
        ready_s = _ready_seconds(config)
        try:
            async with asyncio.timeout(ready_s):
                await _serve_all(slots, config, host, advertise_host)
        except TimeoutError:
            raise StartError(
                f"the services were not ready within {ready_s:.0f} s (mesh.ready_s)"
            ) from None
        beside: list[ServiceInfo] = []
        if prometheus is not None:
            beside.append(await _enter_prometheus(stack, config, prometheus))
        yield Up(slots, beside)


def _observed(config: MeshConfig, program: str) -> MeshConfig:
    """With targets for Prometheus. Raises StartError before anything is started for nothing."""
    from gymmesh_mesh.prometheus import PrometheusError, find_prometheus, free_address

    try:
        find_prometheus(program)
    except PrometheusError as error:
        raise StartError(str(error)) from None
    if not config.mesh.metrics:
        raise StartError("mesh.metrics is false, so there is nothing for Prometheus to read")
    if config.discovery.http_sd.endswith(":0") or not config.discovery.http_sd:
        # A port that stays when the discovery service is started again.
        found = msgspec.structs.replace(config.discovery, http_sd=free_address())
        config = msgspec.structs.replace(config, discovery=found)
    return config


async def _enter_prometheus(stack: AsyncExitStack, config: MeshConfig, program: str) -> ServiceInfo:
    """Starts Prometheus for as long as the stack is open."""
    from gymmesh_mesh.prometheus import PrometheusError, prometheus

    try:
        one = await stack.enter_async_context(prometheus(config.discovery.http_sd, program))
    except PrometheusError as error:
        raise StartError(str(error)) from None
    return ServiceInfo("prometheus", "prometheus", one.address, "", one.pid)


async def _enter_consul(stack: AsyncExitStack, config: MeshConfig) -> None:
    """Finds the Consul agent, or starts one for as long as the stack is open."""
    from gymmesh_mesh.consul_agent import ConsulError, consul_agent

    found = config.discovery
    agent = consul_agent(found.consul, start=found.start, binary=found.binary)
    try:
        await stack.enter_async_context(agent)
    except ConsulError as error:
        raise StartError(str(error)) from None


async def _check_kubernetes(config: MeshConfig) -> None:
    """Raises StartError where the slices cannot be listed, and ConfigError."""
    from gymmesh_discovery.backends.kubernetes import problem_of

    problem = await problem_of(config.discovery.kubernetes)
    if problem is not None:
        raise StartError(problem.message)


def _ready_seconds(config: MeshConfig) -> float:
    """How long the start may take: a model that is loaded here has its own bound, often longer."""
    own = [one for model in config.models.values() if (one := model.serve or model.engine)]
    return max([config.mesh.ready_s, *(one.ready_s + _LOADED_S for one in own)])


async def _serve_all(
    slots: list[_Slot], config: MeshConfig, host: str, advertise_host: str
) -> None:
    settings = config.mesh
    common: dict[str, Any] = {
        "host": host,
        "advertise_host": advertise_host,
        "metrics_port": 0 if settings.metrics else None,
        "drain_s": settings.drain_s,
        "transport": settings.transport,
        "security": msgspec.to_builtins(config.security),
        "traces": settings.traces,
        "traces_endpoint": settings.traces_endpoint,
    }
    if in_consul(config):
        await asyncio.gather(*(slot.serve(common) for slot in slots))
        return
    registry = await slots[0].serve(common)
    found = {**common, "discovery_address": registry[0].address}
    await asyncio.gather(*(slot.serve(found) for slot in slots[1:]))


async def run_up(
    config: MeshConfig,
    *,
    host: str | None = None,
    on_ready: Callable[[list[ServiceInfo]], None],
    echo: Callable[[str], None] = _ignore,
    prometheus: str | None = None,
) -> None:
    """Runs a mesh of processes until SIGINT or SIGTERM, then stops it in reverse order.

    ``prometheus`` is a program to start beside it, as for `up`. Raises StartError when a service
    does not start or dies, and ConfigError as `up` does.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    stopped = asyncio.create_task(stop.wait())
    mesh = up(config, host=host, echo=echo, prometheus=prometheus)
    running = asyncio.create_task(_until_death(mesh, on_ready))
    try:
        await asyncio.wait({stopped, running}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        running.cancel()
        await asyncio.wait({running})
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    if not running.cancelled():
        running.result()  # raises StartError


async def _until_death(
    mesh: AbstractAsyncContextManager[Up], on_ready: Callable[[list[ServiceInfo]], None]
) -> None:
    async with mesh as running:
        on_ready(running.infos)
        raise StartError(await running.wait_for_death())
