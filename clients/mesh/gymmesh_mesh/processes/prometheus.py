"""A Prometheus for a mesh: the program of this machine, started on loopback, ended with the mesh.

Prometheus gets its scrape targets from the discovery service (`discovery.http_sd`), and uses the
project's recording rules and alerts. When Prometheus ends, its data is deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import tempfile
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import yaml

from gymmesh_discovery.http_sd import PATH
from gymmesh_mesh.config import MeshConfig
from gymmesh_mesh.processes.process import ServiceInfo, StartError, end, log_lines, start_beside
from gymmesh_runtime.addresses import free_port
from gymmesh_runtime.text import IN_LINES
from gymmesh_runtime.timers import cancel_and_wait

#: Recording rules and alerts, made from the metrics' names by deploy/observe.
RULES: Final = Path(__file__).with_name("prometheus_rules.yaml")
#: What all rules and dashboards know our services by.
JOB: Final = "gymmesh"
#: Where a collector on this machine is looked for, which is in no registry.
COLLECTOR: Final = "127.0.0.1:9465"

_log = logging.getLogger("gymmesh.mesh")

_START_S: Final = 60.0
_STOP_S: Final = 10.0
_CALL_S: Final = 2.0
_LOG_TAIL: Final = 5
_RETENTION: Final = "2d"


def observed(config: MeshConfig, program: str) -> MeshConfig:
    """The configuration with targets for Prometheus. Raises StartError if there can be none."""
    _find(program)
    if not config.mesh.metrics:
        raise StartError(
            "mesh.metrics is false, so there are no metrics for Prometheus. Set mesh.metrics to "
            "true, or remove --observe"
        )
    if config.discovery.http_sd.endswith(":0") or not config.discovery.http_sd:
        # A port that stays when the discovery service is started again.
        found = msgspec.structs.replace(config.discovery, http_sd=free_address())
        config = msgspec.structs.replace(config, discovery=found)
    return config


def _find(binary: str) -> str:
    """The program's path."""
    found = shutil.which(binary)
    if found is None:
        raise StartError(
            f"there is no program '{binary}'. Install Prometheus, or pass the path of the "
            "program with --prometheus PATH"
        )
    return found


def free_address() -> str:
    """A loopback address with a port that is free and stays free."""
    return f"127.0.0.1:{free_port('127.0.0.1')}"


def configuration(
    http_sd: str, rules: Path, interval_s: float, collector_at: str = COLLECTOR
) -> dict[str, Any]:
    """The configuration of Prometheus: the targets of the discovery service, and rules.

    Args:
        http_sd: host and port of `discovery.http_sd`.
        rules: a file with rules.
        interval_s: how often targets are looked up and scraped, and rules evaluated.
        collector_at: host and port of a collector's metrics.
    """
    host, _, port = http_sd.rpartition(":")
    if host in ("0.0.0.0", "[::]"):
        host = "127.0.0.1"  # it listens on all addresses, which are none to call
    url = f"http://{host}:{port}{PATH}"
    interval = f"{round(interval_s * 1000)}ms"
    job = {
        "job_name": JOB,
        "http_sd_configs": [{"url": url, "refresh_interval": interval}],
        "relabel_configs": [
            # Of a process with several services, the first kind: an agent's, where there is one.
            {
                "source_labels": ["__meta_gymmesh_service"],
                "regex": r"gymmesh\.([a-z]+)\..*",
                "target_label": "kind",
            },
            {"source_labels": ["__meta_gymmesh_name"], "target_label": "service_name"},
        ],
    }
    collector = {
        "job_name": f"{JOB}-collector",
        "static_configs": [{"targets": [collector_at], "labels": {"kind": "collector"}}],
    }
    times = {f"{what}_interval": interval for what in ("scrape", "evaluation")}
    return {
        "global": {**times, "scrape_timeout": interval},
        "rule_files": [str(rules)],
        "scrape_configs": [job, collector],
    }


@asynccontextmanager
async def prometheus(
    http_sd: str,
    binary: str,
    *,
    rules: Path = RULES,
    interval_s: float = 5.0,
    collector_at: str = COLLECTOR,
) -> AsyncIterator[ServiceInfo]:
    """Start Prometheus, wait until it answers, and end it when the context ends.

    The result has the address of its HTTP API and pages. If Prometheus ends earlier, this is
    logged, and the mesh continues. Raises StartError.
    """
    program = _find(binary)
    with tempfile.TemporaryDirectory(prefix="gymmesh-prometheus-") as name:
        folder = Path(name)
        config = folder / "prometheus.yaml"
        config.write_text(yaml.safe_dump(configuration(http_sd, rules, interval_s, collector_at)))
        address = free_address()
        process = await start_beside(
            program, f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
            f"--storage.tsdb.retention.time={_RETENTION}", f"--web.listen-address={address}",
            "--enable-feature=exemplar-storage", "--log.level=warn", stderr=PIPE,
        )  # fmt: skip
        tail: deque[str] = deque(maxlen=_LOG_TAIL)
        reader = asyncio.create_task(_read_log(process, tail))
        watcher: asyncio.Task[None] | None = None
        try:
            await _until_ready(process, address, tail)
            watcher = asyncio.create_task(_watch(process, tail))
            yield ServiceInfo("prometheus", "prometheus", address, "", process.pid)
        finally:
            await cancel_and_wait(watcher)
            await end(process, _STOP_S)
            await cancel_and_wait(reader)


async def _until_ready(process: Process, address: str, tail: deque[str]) -> None:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(_CALL_S)) as session:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_S):
                while process.returncode is None:
                    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                        async with session.get(f"http://{address}/-/ready") as answer:
                            if answer.status == 200:
                                return
                    await asyncio.sleep(0.1)
    if process.returncode is None:
        raise StartError(f"Prometheus was not ready within {_START_S:.0f} s")
    raise StartError(_end(process, tail))


async def _watch(process: Process, tail: deque[str]) -> None:
    await process.wait()
    _log.warning("%s", _end(process, tail), extra=IN_LINES)


def _end(process: Process, tail: deque[str]) -> str:
    said = "\n".join(tail) or "(it logged nothing)"
    return f"Prometheus ended with status {process.returncode}; the end of its log:\n{said}"


async def _read_log(process: Process, tail: deque[str]) -> None:
    async for line in log_lines(process):
        tail.append(line)
