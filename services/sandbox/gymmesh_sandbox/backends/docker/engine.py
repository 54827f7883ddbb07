"""The daemon: what aiodocker does not offer, and errors of the daemon as errors of the mesh."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote, urlencode

import aiodocker
import aiohttp
from aiodocker.exceptions import DockerError
from yarl import URL

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.errors import sandbox_lost

_CONNECT_S: Final = 10.0
_UNREACHABLE: Final = 900  # how aiodocker says that it cannot connect
_GONE: Final = frozenset((404, 409))  # no such container, or it does not run
_SERVER_ERROR: Final = 500


class DockerEngine:
    """A connection to a daemon. Called concurrently, closed once.

    Attributes:
        docker: the client.
    """

    def __init__(self, url: str) -> None:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, connect=_CONNECT_S)
        connector: aiohttp.BaseConnector | None = None
        # Every process and every wait holds a connection: the client's own limit is 100.
        if url.startswith("unix://"):
            connector = aiohttp.UnixConnector(url.removeprefix("unix://"), limit=0)
        session = None if connector is None else aiohttp.ClientSession(connector=connector)
        self._session = session
        self.docker = aiodocker.Docker(url, session=session, connector=connector, timeout=timeout)
        if connector is not None:
            self.docker.docker_host = "unix://localhost"

    @asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str | bytes],
        *,
        data: Any = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A request whose parameters may hold any bytes. Raises DockerError."""
        query = urlencode(parameters, quote_via=quote, safe="")
        url = f"{self.docker.docker_host}/{self.docker.api_version}/{path}?{query}"
        headers = {"Content-Type": "application/x-tar"}
        try:
            response = await self.docker.session.request(
                method,
                URL(url, encoded=True),
                data=data,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            )
        except aiohttp.ClientConnectionError as error:
            raise DockerError(_UNREACHABLE, str(error)) from error
        async with response:
            if response.status >= 400:
                raise DockerError(response.status, await _message(response))
            yield response

    async def close(self) -> None:
        """Closes all connections."""
        await self.docker.close()
        if self._session is not None:
            await self._session.close()


async def _message(response: aiohttp.ClientResponse) -> str:
    try:
        said = await response.json()
        return str(said["message"])
    except (ValueError, KeyError, TypeError, aiohttp.ClientError):
        return f"HTTP status {response.status}"


def unreachable(error: DockerError) -> bool:
    """Whether the daemon could not be reached."""
    return error.status == _UNREACHABLE


def container_error(error: Exception, sandbox_id: str) -> MeshError:
    """The error of a failed call for a container.

    SANDBOX_LOST if the container or the daemon is gone, otherwise INTERNAL_FAULT.
    """
    if not isinstance(error, DockerError) or unreachable(error):
        return sandbox_lost(sandbox_id, "the daemon is unreachable")
    if error.status in _GONE:
        return sandbox_lost(sandbox_id, "its container is gone")
    return MeshError(
        errors_pb2.ERROR_REASON_INTERNAL_FAULT,
        f"The daemon refused a call with status {error.status}: {one_line(error.message)}.",
        metadata={"sandbox_id": sandbox_id},
    )


def one_line(message: str, most: int = 300) -> str:
    """The daemon's text on one line, shortened, without a full stop."""
    text = " ".join(message.split()).rstrip(".")
    return text if len(text) <= most else text[: most - 1] + "…"


#: What a call for the daemon raises when it fails: its answer, or the broken connection.
FAILURES: Final = (DockerError, aiohttp.ClientError, OSError)
