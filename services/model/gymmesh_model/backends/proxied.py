"""Fetching through aiohttp, which knows the environment's proxies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import aiohttp

from gymmesh_model.backends.transport import MAX_ANSWER_BYTES, Live, Whole
from gymmesh_model.http1 import (
    Body,
    ConnectFailed,
    ConnectionLost,
    ConnectTimedOut,
    ProtocolViolated,
    TooLarge,
)

_CHUNK: Final = 256 * 1024
_CLOSE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class _Whole:
    status: int
    headers: Mapping[str, str]
    body: bytes


class _Live:
    def __init__(self, response: aiohttp.ClientResponse, connect_timeout: float) -> None:
        self._response = response
        self._connect_timeout = connect_timeout
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.content_type = response.content_type

    async def pieces(self) -> AsyncIterator[bytes]:
        size = 0
        with _typed(self._connect_timeout):
            async for piece in self._response.content.iter_chunked(_CHUNK):
                size += len(piece)
                if size > MAX_ANSWER_BYTES:
                    raise TooLarge(f"it is larger than {MAX_ANSWER_BYTES} bytes")
                yield piece

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])


class ProxiedTransport:
    """By aiohttp. headers: of every request. limit: connections. connect_timeout: seconds.

    No connection is kept: aiohttp does not say what a kept one brought while nobody had asked,
    and a copy of an earlier answer would be taken for the next one.
    """

    def __init__(self, headers: Mapping[str, str], limit: int, connect_timeout: float) -> None:
        self._connect_timeout = connect_timeout
        self._session = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=limit, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout),
            trust_env=True,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def post(self, url: str, body: Body, headers: Mapping[str, str] | None) -> Whole:
        """See Transport."""
        sent = body if isinstance(body, bytes) else body()
        async with self.stream(url, sent, headers) as answer:
            return _Whole(answer.status, answer.headers, await answer.read())

    @contextlib.asynccontextmanager
    async def stream(
        self, url: str, body: bytes, headers: Mapping[str, str] | None
    ) -> AsyncIterator[Live]:
        """See Transport."""
        with _typed(self._connect_timeout):
            asked = self._session.post(url, data=body, headers=headers, allow_redirects=False)
            async with asked as response:
                yield _Live(response, self._connect_timeout)

    async def close(self) -> None:
        """See Transport."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._session.close()


@contextlib.contextmanager
def _typed(connect_timeout: float) -> Iterator[None]:
    """Turns aiohttp's exceptions into those of the own client."""
    try:
        yield
    except aiohttp.ConnectionTimeoutError:
        raise ConnectTimedOut(f"no connection within {connect_timeout:g} s") from None
    except aiohttp.ClientPayloadError:
        cause = "connection broke inside the answer"
        raise ConnectionLost(cause, head=True, untouched=False) from None
    except (aiohttp.ClientResponseError, aiohttp.InvalidURL) as failure:
        raise ProtocolViolated(type(failure).__name__) from None
    except aiohttp.ClientConnectorError as failure:
        raise ConnectFailed(_cause(failure.os_error)) from None
    except (aiohttp.ClientError, ConnectionError) as failure:
        raise ConnectionLost(_cause(failure), head=False, untouched=False) from None


def _cause(failure: BaseException) -> str:
    """A few words without addresses, which may hold a user's name and password."""
    if isinstance(failure, ConnectionRefusedError):
        return "connection refused"
    if isinstance(failure, ConnectionResetError | aiohttp.ServerDisconnectedError):
        return "connection closed by the endpoint"
    if isinstance(failure, OSError) and failure.strerror:
        return failure.strerror
    return type(failure).__name__
