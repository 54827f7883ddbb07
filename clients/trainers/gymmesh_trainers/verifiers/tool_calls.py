"""An HTTP server on this machine through which the tool server calls the tools of sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from gymmesh_agent.failures import StepFailed
from gymmesh_trainers.verifiers.sessions import MeshSession

_MOST_BYTES: Final = 64 << 20


@asynccontextmanager
async def tool_calls_served(sessions: Mapping[str, MeshSession]) -> AsyncIterator[str]:
    """Serves them on a free port of 127.0.0.1; the URL. A call names its session by the token.

    `POST /call` with `{"name", "arguments"}` and `Authorization: Bearer TOKEN` answers `{"text",
    "is_error"}`; 502 where the environment did not answer.
    """

    async def call(request: web.Request) -> web.Response:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        session = sessions.get(token)
        if session is None:
            raise web.HTTPNotFound(text="there is no such session")
        asked = await request.json()
        try:
            text, is_error = await session.call(asked["name"], asked["arguments"])
        except StepFailed:
            # The episode fails; the model only has to be told something.
            raise web.HTTPBadGateway(text="the environment did not answer") from None
        return web.json_response({"text": text, "is_error": is_error})

    app = web.Application(client_max_size=_MOST_BYTES)
    app.router.add_post("/call", call)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
