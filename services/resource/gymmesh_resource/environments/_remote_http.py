"""Functions that all environments of remote HTTP servers use."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import aiohttp

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError

# A connection may take this long to open, whatever the call may take in all.
CONNECT_S: Final = 10.0
# uvicorn, which these servers mostly run in, drops connections that were idle for 5 s.
_KEEP_IDLE_S: Final = 3.0
# Client errors that a server without room, or one that is still starting, answers.
_PASSING: Final = (408, 425, 429)
_REFUSALS: Final = {
    401: errors_pb2.ERROR_REASON_CREDENTIAL_INVALID,
    403: errors_pb2.ERROR_REASON_NOT_PERMITTED,
}


def root_url(url: str, further: dict[str, str] | None = None) -> str:
    """The server's root over HTTP, without a slash at the end. Raises ValueError.

    `further`: further schemes that a URL may have, each with the scheme that replaces it.
    """
    schemes = {"http": "http", "https": "https"} | (further or {})
    parts = urlsplit(url)
    if parts.scheme not in schemes or not parts.hostname:
        raise ValueError(f"url is {url!r}; write the url as http://HOST:PORT")
    if parts.query or parts.fragment:
        raise ValueError(f"url is {url!r}; remove the query (?…) or fragment (#…)")
    return f"{schemes[parts.scheme]}://{parts.netloc}{parts.path}".rstrip("/")


def http_client(headers: dict[str, str], *, max_connections: int) -> aiohttp.ClientSession:
    """A client that keeps no cookies and has no time limit of its own. `max_connections` 0: no
    limit. Create it inside an event loop.
    """
    return aiohttp.ClientSession(
        headers=headers,
        connector=aiohttp.TCPConnector(
            limit=max_connections, keepalive_timeout=_KEEP_IDLE_S, ttl_dns_cache=60
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
    )


async def body_of(response: aiohttp.ClientResponse, most: int) -> bytes | None:
    """The body of an answer; None if the body has more than `most` bytes."""
    chunks, size = [], 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > most:
            return None
    return b"".join(chunks)


def refusal(server: str, environment: str, status: int, path: str) -> MeshError | None:
    """The error for an HTTP status after which a retry would also be refused; None: a retry may
    succeed.

    server: how the message names it, such as `The OpenEnv server at http://127.0.0.1:8000`.
    """
    if status in _PASSING or not 300 <= status < 500:
        return None
    option = "headers" if status in _REFUSALS else "url"
    return MeshError(
        _REFUSALS.get(status, errors_pb2.ERROR_REASON_NOT_OFFERED),
        f"{server} refused {path} with status {status}; check the option {option}.",
        metadata={"environment": environment, "method": path},
    )
