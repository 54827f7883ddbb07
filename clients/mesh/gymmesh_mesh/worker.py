"""One process of a mesh, with one service or several: ``python -m gymmesh_mesh.worker``.

The parent sends JSON lines over standard input: first the services' specs (so that no argument list
has secrets), then, once the registry is up, its address. It reads one line from the original
standard output. While the worker waits, it imports and opens as much as possible. It prints
``{"ready": …}`` or ``{"failed": …}``. It drains on SIGTERM or at the end of standard input, which
shows that the parent has ended.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeVar

import msgspec

from gymmesh_mesh.compose import ServiceSpec, make_services
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.serve import Served, ServeOptions, serve
from gymmesh_runtime.serving import run
from gymmesh_runtime.serving.service import Service
from gymmesh_runtime.telemetry import Concealing, LogFormat, OneOfEach, formatter

_MAX_REASON: Final = 4000  # characters; the parent reads lines of bounded length
_Say = Callable[[dict[str, Any]], None]
_T = TypeVar("_T")


class _Task(msgspec.Struct):
    """What the parent says first."""

    services: list[ServiceSpec]
    exposed: frozenset[str]
    log_format: LogFormat = "text"


def main() -> int:
    """Runs the worker; returns its exit status."""
    handler = logging.StreamHandler()
    handler.setFormatter(Concealing())
    handler.addFilter(OneOfEach())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    say = _take_stdout()
    task = _told(_Task)
    handler.setFormatter(formatter(task.log_format))
    try:
        # Imports the rooms while the registry starts.
        services = make_services(task.services)
    except (MeshError, ConfigError) as error:
        return _failed(error, say)
    options = _told(ServeOptions)
    try:
        run(_serve(services, task.exposed, options, say))
    except (MeshError, ConfigError, OSError) as error:
        return _failed(error, say)
    return 0


def _told(kind: type[_T]) -> _T:
    """What the next line of the parent says; ends the process where the parent is gone."""
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        raise SystemExit(1)
    return msgspec.json.decode(line, type=kind)


def _take_stdout() -> _Say:
    """Keeps standard output for the parent, and sends what others print to the log.

    The parent reads one line of it; prints of an environment or a library would
    break that line, or fill the pipe and block.
    """
    parent = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(message: dict[str, Any]) -> None:
        parent.write(json.dumps(message) + "\n")
        parent.flush()

    return say


async def _serve(
    services: Sequence[Service], exposed: Collection[str], options: ServeOptions, say: _Say
) -> None:
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), _on_parent)
    try:
        await serve(
            services,
            options,
            lambda served: say({"ready": _where(served, services)}),
            exposed=lambda one: one.instance_id in exposed,
        )
    finally:
        loop.remove_reader(sys.stdin.fileno())


def _on_parent() -> None:
    # Nothing more is said on standard input: it becomes readable when it ends.
    asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
    os.kill(os.getpid(), signal.SIGTERM)


def _failed(error: Exception, say: _Say) -> int:
    message = error.message if isinstance(error, MeshError) else str(error)
    say({"failed": (message or type(error).__name__)[:_MAX_REASON]})
    return 1


def _where(served: Served, services: Sequence[Service]) -> dict[str, dict[str, str]]:
    """By instance id; what is called from this process alone has no address."""
    addresses = {one.id: one.address for one in served.instances}
    metrics = next((one.metrics_address for one in served.instances), "")
    return {
        one.instance_id: {
            "address": addresses.get(one.instance_id, ""),
            "metrics_address": metrics,
            "mcp_url": one.meta.get("mcp", ""),
            "protocols_url": one.meta.get("protocols", ""),
        }
        for one in services
    }


if __name__ == "__main__":
    raise SystemExit(main())
