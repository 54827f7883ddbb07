"""Posts JSON to a NeMo Gym resources server, with a session's cookies.

Invariant: cookies belong to one session and travel nowhere else: the HTTP client itself keeps
none. An answer of any status comes back as one; only a server that gave none is an exception.
"""

from __future__ import annotations

from dataclasses import dataclass
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from gymmesh_responses import bytes_to_text, dumps

# A connection may take this long to open, whatever the call may take in all.
_CONNECT_S = 10.0
# uvicorn, which these servers run in, drops connections that were idle for 5 s: ours end before.
_KEEP_IDLE_S = 3.0


class NoAnswer(Exception):
    """The server cannot be reached, broke off, or sent too much; one clause says which."""


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """An HTTP status and the body as text."""

    status: int
    text: str

    @property
    def ok(self) -> bool:
        """Whether the server did what was asked."""
        return 200 <= self.status < 300


class Client:
    """One server. `url`: its root, without a slash at the end. To be made inside an event loop."""

    def __init__(
        self, url: str, *, headers: dict[str, str], max_connections: int, max_bytes: int
    ) -> None:
        self._url = url
        self._max_bytes = max_bytes
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=max_connections, keepalive_timeout=_KEEP_IDLE_S, ttl_dns_cache=60
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers | {"Content-Type": "application/json"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
        )

    async def post(self, name: str, body: Any, cookies: SimpleCookie) -> ServerAnswer:
        """Post to `/<name>`; cookies of the answer go into `cookies`. Raises `NoAnswer`.

        Takes as long as the server does: bound it outside.
        """
        try:
            async with self._http.post(
                f"{self._url}/{name}", data=dumps(body), cookies=cookies, allow_redirects=False
            ) as response:
                _keep(response.cookies, cookies)
                body = await bounded_body(response, self._max_bytes)
                return ServerAnswer(response.status, bytes_to_text(body))
        except TimeoutError:
            raise NoAnswer(f"it accepted no connection within {_CONNECT_S:g} s") from None
        except aiohttp.ClientError as error:
            raise NoAnswer(f"{type(error).__name__}: {error}") from error

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()


async def bounded_body(response: aiohttp.ClientResponse, most: int) -> bytes:
    """The body of an answer. Raises NoAnswer where it has more bytes than `most`."""
    chunks, size = [], 0
    async for chunk in response.content.iter_chunked(65_536):
        chunks.append(chunk)
        size += len(chunk)
        if size > most:
            raise NoAnswer(f"its answer has more than {most} bytes")
    return b"".join(chunks)


def check_url(url: str) -> str:
    """The server's root without a slash at the end. Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"url is {url!r}; write the url as http://HOST:PORT")
    if parts.query or parts.fragment:
        raise ValueError(f"url is {url!r}; the url must end with the host and port, or with a path")
    return url.rstrip("/")


def _keep(new: SimpleCookie, cookies: SimpleCookie) -> None:
    for name, morsel in new.items():
        if morsel["max-age"] == "0":
            cookies.pop(name, None)
        else:
            cookies[name] = morsel
