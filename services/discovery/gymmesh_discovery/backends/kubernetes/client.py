"""Requests to a Kubernetes API server: list EndpointSlices, and watch them.

The module sends two requests of a stable API, over aiohttp. Complete Kubernetes clients cost half a
second and 40 MiB in each process. They also leave the necessary details (bookmarks, 410, long
lines) to the caller.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Final, NamedTuple, NoReturn
from urllib.parse import quote

import aiohttp

from gymmesh.errors.v1 import errors_pb2
from gymmesh_discovery.backends.entry import printable
from gymmesh_discovery.backends.kubernetes.access import find_access
from gymmesh_discovery.backends.kubernetes.objects import (
    EndpointSlice,
    EndpointSliceList,
    Status,
    UnreadableError,
    WatchEvent,
    read,
)
from gymmesh_discovery.config import KubernetesConfig
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.kubernetes import Access
from gymmesh_runtime.text import mask_secrets

_CONNECT_S: Final = 3.0
_LIST_S: Final = 30.0
_ANSWER_S: Final = 10.0  # beyond what a watch may take
_PAGE: Final = 500
_MAX_SLICES: Final = 20_000
_MAX_BODY_BYTES: Final = 64 * 2**20  # of a page
_MAX_EVENT_BYTES: Final = 4 * 2**20  # etcd holds no object larger than 1.5 MiB
_MAX_SHOWN: Final = 300
_GONE: Final = 410


class GoneError(Exception):
    """The API server no longer has the version to watch from, or the next page of a list."""


class Event(NamedTuple):
    """ADDED, MODIFIED or DELETED with the current or last state of the slice, or BOOKMARK with a
    slice that only has a version.
    """

    type: str
    slice: EndpointSlice


class KubernetesClient:
    """A client of one API server and one namespace. Create it within an event loop. Methods raise
    MeshError.
    """

    def __init__(self, config: KubernetesConfig, access: Access) -> None:
        self._config = config
        self._access = access
        self.address = access.server
        space = f"/namespaces/{quote(access.namespace, safe='')}/endpointslices"
        self._url = f"{access.server.rstrip('/')}/apis/discovery.k8s.io/v1{space}"
        timeout = aiohttp.ClientTimeout(connect=_CONNECT_S, sock_connect=_CONNECT_S)
        connector = aiohttp.TCPConnector(ssl=access.tls())
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)

    async def close(self) -> None:
        await self._session.close()

    async def slices(self) -> tuple[str, list[EndpointSlice]]:
        """All slices that match the selector, and the version from which to watch.

        Raises GoneError if the list became too old between two pages.
        """
        found: list[EndpointSlice] = []
        token = ""
        while True:
            params = {"limit": str(_PAGE)}
            if token:
                params["continue"] = token
            timeout = aiohttp.ClientTimeout(total=_LIST_S, sock_connect=_CONNECT_S)
            async with self._get(params, timeout) as response:
                page = read(await _body(response), EndpointSliceList)
            found += page.items or []
            if len(found) > _MAX_SLICES:
                raise self._strange(
                    f"the namespace has more than {_MAX_SLICES} EndpointSlices that match the "
                    "selector. Narrow discovery.kubernetes.selector"
                )
            token = page.metadata.continue_
            if not token:
                if not page.metadata.resource_version:
                    raise self._strange("the list of EndpointSlices has no version")
                return page.metadata.resource_version, found

    @contextlib.asynccontextmanager
    async def watch(self, version: str) -> AsyncIterator[AsyncIterator[Event]]:
        """The changes after a version. The context is entered once the API server has accepted the
        watch. The watch ends after ``wait_s``. Raises GoneError, also while the events are read.
        """
        wait_s = self._config.wait_s
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(round(wait_s)),
        }
        timeout = aiohttp.ClientTimeout(total=wait_s + _ANSWER_S, sock_connect=_CONNECT_S)
        async with self._get(params, timeout) as response:
            yield self._events(response.content)

    async def _events(self, content: aiohttp.StreamReader) -> AsyncIterator[Event]:
        async for line in _lines(content):
            event = read(line, WatchEvent)
            if event.type == "ERROR":
                status = read(event.object, Status)
                if status.code == _GONE:
                    raise GoneError
                raise self._away(f"ended a watch ({status.code}: {_shown(status.message)})")
            if event.type not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
                raise UnreadableError(f"it sends an event '{event.type}'")
            yield Event(event.type, read(event.object, EndpointSlice))

    @contextlib.asynccontextmanager
    async def _get(
        self, params: Mapping[str, str], timeout: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            headers = {"Accept": "application/json"}
            token = self._access.bearer()
            if token is not None:
                headers["Authorization"] = f"Bearer {token}"
            async with self._session.get(
                self._url,
                params={"labelSelector": self._config.selector, **params},
                headers=headers,
                timeout=timeout,
                allow_redirects=False,  # the token is for this server
                server_hostname=self._access.server_name or None,
            ) as response:
                try:
                    if response.status != 200:
                        await self._refused(response)
                    yield response
                finally:
                    _cut(response)
        except ConfigError as error:
            raise refusal(str(error)) from None
        except TimeoutError:
            raise self._away("did not answer in time") from None
        except (aiohttp.ClientError, OSError) as error:
            raise self._away(f"cannot be reached: {_shown(str(error) or repr(error))}") from None
        except UnreadableError as error:
            raise self._strange(str(error)) from None

    async def _refused(self, response: aiohttp.ClientResponse) -> NoReturn:
        code, body = response.status, await _body(response)
        try:
            status = read(body, Status)
        except UnreadableError:
            status = Status(message=body[:_MAX_SHOWN].decode(errors="replace"))
        if code == _GONE:
            raise GoneError
        said = f"{code}: {_shown(status.message)}"
        if code in (401, 403):
            raise refusal(
                f"Kubernetes at {self.address} rejects the credentials ({said}). "
                f"Check {self._access.hint}"
            )
        if code == 400:
            raise MeshError(
                errors_pb2.ERROR_REASON_FIELD_INVALID,
                f"Kubernetes at {self.address} rejects the request ({said}). Check "
                "discovery.kubernetes.selector",
            )
        raise self._away(f"answers {said}")

    def _away(self, problem: str) -> MeshError:
        return MeshError(
            errors_pb2.ERROR_REASON_PEER_UNAVAILABLE, f"Kubernetes at {self.address} {problem}"
        )

    def _strange(self, problem: str) -> MeshError:
        return MeshError(
            errors_pb2.ERROR_REASON_PEER_UNAVAILABLE,
            f"the server at {self.address} does not answer like Kubernetes: {_shown(problem)}",
        )


def _cut(response: aiohttp.ClientResponse) -> None:
    """Drops the connection of an answer that was not read to its end.

    aiohttp would close it in order and forget it: over TLS it then stays open until the server
    agrees, for up to 30 s, whatever becomes of this client.
    """
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """An answer's body. Raises UnreadableError for one that never ends."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _MAX_BODY_BYTES:
            raise UnreadableError(f"the answer exceeds {_MAX_BODY_BYTES} bytes")
    return bytes(body)


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a stream. aiohttp's own are shorter than an event may be."""
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > _MAX_EVENT_BYTES:
            raise UnreadableError(f"an event exceeds {_MAX_EVENT_BYTES} bytes")


def refusal(message: str) -> MeshError:
    """The error for a request that the API server refuses."""
    return MeshError(errors_pb2.ERROR_REASON_NOT_PERMITTED, message)


def _shown(text: str) -> str:
    """The start of what somebody else wrote, fit to be printed."""
    return printable(mask_secrets(text)).strip()[:_MAX_SHOWN] or "(nothing)"


async def problem_of(config: KubernetesConfig) -> MeshError | None:
    """Why the configured slices cannot be listed; None if they can. Raises ConfigError."""
    client = KubernetesClient(config, find_access(config))
    try:
        await client.slices()
    except GoneError:
        return None  # it answers
    except MeshError as error:
        return error
    finally:
        await client.close()
    return None
