"""A process of a mesh that is restarted when it dies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from gymmesh_mesh.config import MeshConfig
from gymmesh_mesh.layout import ProcessPlan, in_consul
from gymmesh_mesh.processes.process import ServiceInfo, ServiceProcess, StartError
from gymmesh_runtime.serve import ServeOptions
from gymmesh_runtime.text import IN_LINES
from gymmesh_runtime.timers import doubled_s

_log = logging.getLogger("gymmesh.mesh")

_FIRST_RESTART_S: Final = 0.5
_LONGEST_RESTART_S: Final = 30.0
# What a service needs besides loading a model; the model's own words on a failure come first.
_LOADED_S: Final = 30.0


class RestartedProcess:
    """One process, restarted when it dies.

    A restarted process keeps its ports, so that its callers and the readers of its metrics find it
    again, and its instance ids, so that the registry recognises the same service at the same
    address. If the system chose a port, another process may have taken it in the meantime. The
    service then gets a new port, and its callers learn the port from the registry. A registry
    itself always keeps its port, because callers would not find it elsewhere. A port from the
    configuration is always kept, too.
    """

    def __init__(self, plan: ProcessPlan, config: MeshConfig, echo: Callable[[str], None]) -> None:
        self._plan = plan
        self._config = config
        self._echo = echo
        self._movable = [
            spec.instance_id
            for spec in plan.specs
            if spec.kind != "discovery" and not plan.ports.get(spec.instance_id)
        ]
        self._options = ServeOptions()
        self._process: ServiceProcess | None = None
        self.infos: list[ServiceInfo] = []

    async def start(self) -> None:
        """Start the process."""
        log_format = self._config.mesh.log_format
        self._process = await ServiceProcess.start(self._plan, log_format, self._echo)

    async def serve(self, options: ServeOptions) -> list[ServiceInfo]:
        """Wait until its services are SERVING. Raises StartError."""
        assert self._process is not None
        infos = await self._process.serve(replace(options, movable=self._movable))
        ports = {
            spec.instance_id: _port(info.address)
            for spec, info in zip(self._plan.specs, infos, strict=True)
            if info.address
        }
        self._plan = replace(self._plan, ports=ports)
        self._options = _with_metrics_port_of(infos, options)
        inner = in_consul(self._config)
        self.infos = [one for one in infos if one.address or one.kind != "discovery" or not inner]
        return self.infos

    async def death(self) -> str:
        """Restart the process each time it dies, `mesh.restarts` times. Then return why it died."""
        limit, failed = self._config.mesh.restarts, ""
        for restart in range(limit + 1):
            assert self._process is not None
            await self._process.process.wait()
            reason = failed or await self._process.why_it_ended()
            if restart == limit:
                break
            pause = doubled_s(_FIRST_RESTART_S, restart + 1, _LONGEST_RESTART_S)
            said = f"restart {restart + 1} of {limit} in {pause:g} s: {reason}"
            _log.warning("%s", said, extra=IN_LINES)
            await asyncio.sleep(pause)
            failed = await self._start_again()
        return (
            reason
            if not limit
            else f"{reason}\nthe process was already restarted {limit} times, which is the "
            "limit (mesh.restarts)"
        )

    async def stop(self) -> None:
        """Ends the process."""
        if self._process is not None:
            await self._process.stop(self._config.mesh.drain_s)

    async def _start_again(self) -> str:
        """Starts the process anew. One that does not come up is dead again; returns why."""
        before = self.infos
        await self.stop()
        await self.start()
        assert self._process is not None
        ready_s = ready_seconds(self._config)
        try:
            async with asyncio.timeout(ready_s):
                await self.serve(self._options)
        except StartError as error:
            failed = str(error)
        except TimeoutError:
            failed = f"after a restart, '{self._plan.name}' was not ready within {ready_s:.0f} s"
        else:
            pid = self._process.process.pid
            _log.warning("%s was restarted; the new pid is %d", self._process.title, pid)
            for sentence in _moves(self._process.title, before, self.infos):
                _log.warning("%s", sentence)
            return ""
        await self._process.stop(0.0)
        return failed


def _with_metrics_port_of(infos: Sequence[ServiceInfo], options: ServeOptions) -> ServeOptions:
    """The options with which the process is served again, at the port of its metrics."""
    # One port for all services of a process. The system chose the port, as no key sets it.
    address = next((info.metrics_address for info in infos if info.metrics_address), "")
    if not address:
        return options
    return replace(options, metrics_port=_port(address), metrics_movable=True)


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _moves(
    title: str, before: Sequence[ServiceInfo], after: Sequence[ServiceInfo]
) -> Iterator[str]:
    """A sentence for each address that is another than before."""
    for old, new in zip(before, after, strict=True):
        if old.address != new.address:
            yield (
                f"another program took the port of the {old.kind} service '{old.name}' at "
                f"{old.address}. The service's new address is {new.address}"
            )
        for what, url, now in (
            ("tools over MCP", old.mcp_url, new.mcp_url),
            ("other protocols", old.protocols_url, new.protocols_url),
        ):
            if url != now:
                yield f"{what} of {new.name} are now at {now}"
    was, now = before[0].metrics_address, after[0].metrics_address
    if was != now:
        yield f"another program took the metrics port of {title} at {was}. The new one is {now}"


def ready_seconds(config: MeshConfig) -> float:
    """The time limit of the start. A model that is loaded in the mesh has its own, often longer,
    limit.
    """
    own = [one for model in config.models.values() if (one := model.serve or model.engine)]
    return max([config.mesh.ready_s, *(one.ready_s + _LOADED_S for one in own)])
