"""A service's tools over MCP for as long as the service is open.

Invariant: what serves lives in one task of its own, whichever tasks open and close it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from gymmesh_resource.config import McpConfig
from gymmesh_runtime.addresses import TOOLS_HARM, at_port, is_local, log_exposure
from gymmesh_runtime.config import ConfigError

IS_FACE = True  # see tools/import_faces.py

if TYPE_CHECKING:
    from gymmesh_resource.protocols import OfferedService

_STOP_S = 4.0

_LOGGER = logging.getLogger("gymmesh.resource")


class Offering:
    """A tool server of one service, on the address that the configuration names.

    Raises ConfigError for an address that other machines can reach, unless `allow_other_hosts`.
    """

    def __init__(self, service: OfferedService, config: McpConfig) -> None:
        self._service = service
        self._config = config
        self._place = f"environments.{service.name}.mcp"
        #: Where it is; empty while it does not serve.
        self.url = ""
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        check_host(config, self._place)

    async def open(self) -> None:
        """Begin to serve. Raises ConfigError."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[str] = loop.create_future()
        self._task = loop.create_task(self._serve(ready))
        await asyncio.wait((ready, self._task), return_when=asyncio.FIRST_COMPLETED)
        if not self._task.done():
            self.url = ready.result()
            _LOGGER.info("environment %s: tools over MCP at %s", self._service.name, self.url)
            what = f"the tools of environment {self._service.name} are offered over MCP"
            log_exposure(what, self._config.host, TOOLS_HARM, tokens=True)
            return
        task, self._task = self._task, None
        try:
            task.result()
        except ConfigError as error:
            raise ConfigError(error.problem, path=self._place) from None
        except (OSError, TimeoutError) as error:
            at = at_port(self._config.host, self._config.port)
            raise ConfigError(
                f"cannot listen on {at} ({error.__class__.__name__}: {error}). Choose another "
                "port, or 0 for a free one",
                path=self._place,
            ) from None

    async def close(self) -> None:
        """Stop serving; harmless when called twice."""
        if self._task is not None:
            self._stop.set()
            await asyncio.wait((self._task,), timeout=_STOP_S)
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=1.0)
            self._task = None
        self.url = ""

    async def _serve(self, ready: asyncio.Future[str]) -> None:
        # Late, because the MCP library is optional.
        from gymmesh_resource.mcp_server import ToolServer, serve

        app = ToolServer(self._service)
        async with serve(app, host=self._config.host, port=self._config.port) as url:
            ready.set_result(url)
            await self._stop.wait()


def check_host(config: McpConfig, place: str) -> None:
    """Raises ConfigError for a host that other machines can reach, unless that is allowed."""
    if config.allow_other_hosts or is_local(config.host):
        return
    raise ConfigError(
        f"{config.host!r} is reachable from other machines, and its traffic is not encrypted. "
        "Use 127.0.0.1, or set allow_other_hosts: true",
        path=f"{place}.host",
    )
