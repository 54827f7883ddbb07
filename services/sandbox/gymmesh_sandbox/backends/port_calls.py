"""An HTTP request to a server in a sandbox, over a connection that a backend makes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Awaitable, Callable
from typing import Final

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_runtime.errors import MeshError, field_invalid

_PIECE_BYTES: Final = 1 << 16
_CLOSE_S: Final = 1.0


async def call_over(
    connector: aiohttp.BaseConnector, request: sandbox_pb2.CallPortRequest, max_bytes: int
) -> sandbox_pb2.CallPortResponse:
    """Makes the request and closes the connector. The service enforces the time limit.

    Raises SANDBOX_PORT_UNREACHABLE, FIELD_INVALID and MESSAGE_TOO_LARGE.
    """
    try:
        headers = CIMultiDict(
            (one.name, one.value.decode("utf-8", "surrogateescape")) for one in request.headers
        )
        url = URL(f"http://127.0.0.1:{request.port}{request.path or '/'}", encoded=True)
    except ValueError as error:
        await connector.close()
        raise field_invalid("path", f"cannot be sent: {error}") from None
    try:
        async with (
            aiohttp.ClientSession(
                connector=connector,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("User-Agent", "Content-Type", "Accept", "Accept-Encoding"),
                timeout=aiohttp.ClientTimeout(total=None),
            ) as session,
            session.request(
                request.method or "GET",
                url,
                headers=headers,
                data=request.body or None,
                allow_redirects=False,
            ) as response,
        ):
            return await _answer(response, max_bytes)
    except aiohttp.ClientError as error:
        raise port_unreachable(request.port) from error


async def call_through(
    carry: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    request: sandbox_pb2.CallPortRequest,
    max_bytes: int,
) -> sandbox_pb2.CallPortResponse:
    """`call_over`, for a backend that itself forwards the bytes of a connection.

    Args:
        carry: forwards one connection until one side ends it, and closes the writer.
    """
    with tempfile.TemporaryDirectory(prefix="gymmesh-port-") as folder:
        path = os.path.join(folder, "s")
        server = await asyncio.start_unix_server(carry, path)
        try:
            connector = aiohttp.UnixConnector(path, force_close=True)
            return await call_over(connector, request, max_bytes)
        finally:
            server.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await server.wait_closed()


async def _answer(response: aiohttp.ClientResponse, max_bytes: int) -> sandbox_pb2.CallPortResponse:
    body = bytearray()
    async for piece in response.content.iter_chunked(_PIECE_BYTES):
        body += piece
        if len(body) > max_bytes:
            raise MeshError(
                errors_pb2.ERROR_REASON_MESSAGE_TOO_LARGE,
                f"The answer is larger than {max_bytes} bytes.",
                metadata={"limit_bytes": str(max_bytes)},
            )
    return sandbox_pb2.CallPortResponse(
        status=response.status,
        headers=[
            sandbox_pb2.HttpHeader(name=name.decode("latin-1"), value=value)
            for name, value in response.raw_headers
        ],
        body=bytes(body),
    )


def port_unreachable(port: int) -> MeshError:
    """SANDBOX_PORT_UNREACHABLE."""
    return MeshError(
        errors_pb2.ERROR_REASON_SANDBOX_PORT_UNREACHABLE,
        f"No server answers at port {port} of the sandbox.",
        metadata={"port": str(port)},
    )
