"""An ASGI application on a port of this process, for projects that bring uvicorn."""

# What it imports lies in another environment.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import asyncio
import json
import socket
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """The address of the application, as long as the block lasts."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            # It connects at once and is answered as soon as the application has started.
            port = listening.getsockname()[1]
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            await serving


async def posted(url: str, body: Any) -> Any:
    """The answer to a request with a body of JSON."""
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    return await asyncio.to_thread(_read, request)


async def got(url: str) -> Any:
    """The answer to a request without a body."""
    return await asyncio.to_thread(_read, urllib.request.Request(url))


def _read(request: urllib.request.Request) -> Any:
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)
