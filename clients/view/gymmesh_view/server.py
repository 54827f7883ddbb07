"""The local server: the page and its API, only for the user who started it.

The Host header of a request must name this machine's loopback. A web page can therefore not reach
the server under a name that points to this machine (DNS rebinding). A request must also have a
session: a cookie that scripts cannot read. The browser gets the cookie once, for the token in the
address that gym-cli view prints. Requests can only read.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any, Final

from aiohttp import web

from gymmesh_client import UserError
from gymmesh_runtime.serving import HttpConnections, requests_log
from gymmesh_runtime.text import os_reason
from gymmesh_view.reading import Reading, to_json
from gymmesh_view.rows import Json, parse_filters, parse_sort

_log = logging.getLogger("gymmesh.view")

STATIC: Final = {
    "index.html": "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
}
_HOSTS: Final = frozenset(("127.0.0.1", "localhost", "::1"))
_MOST_ROWS: Final = 500
_CONNECTION_S: Final = 120.0
_MOST_OFFSET: Final = 1 << 40
_MOST_FIELD: Final = 4_096
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
_NO_SESSION: Final = (
    "This page opens only with the token in the address that gym-cli view printed.\n"
    "Open that address again in this browser.\n"
)

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_Answer = Callable[[web.Request], Json]


class ViewServer:
    """Serves the page and the API of some sources.

    Attributes:
        token: the token that the first request must present.
        url: the address to open, including the token; set once the server listens.
    """

    def __init__(self, reading: Reading) -> None:
        self.token = secrets.token_urlsafe(32)
        self.url = ""
        self._session = secrets.token_urlsafe(32)
        self._reading = reading
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="view-read")
        self._cookie = f"gymmesh_view_{secrets.token_hex(4)}"

    @asynccontextmanager
    async def serving(self, port: int) -> AsyncIterator[ViewServer]:
        """Serve on 127.0.0.1 until the context ends. With port 0 the system chooses the port.
        Raises UserError if the port is taken.
        """
        runner = web.AppRunner(
            self._application(),
            access_log=None,
            max_line_size=16_384,
            shutdown_timeout=2,
            logger=requests_log("gymmesh.view"),
        )
        await runner.setup()
        try:
            connections = HttpConnections(runner, _CONNECTION_S)
            try:
                server = await asyncio.get_running_loop().create_server(
                    connections, "127.0.0.1", port
                )
            except OSError as error:
                raise UserError(
                    f"cannot listen on port {port}: {os_reason(error)}. Choose another port "
                    "with --port"
                ) from None
            bound = server.sockets[0].getsockname()[1]
            self.url = f"http://127.0.0.1:{bound}/?token={self.token}"
            try:
                yield self
            finally:
                server.close()
        finally:
            await runner.cleanup()
            self._threads.shutdown()

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._guarded])
        application.router.add_get("/", self._page)
        application.router.add_get("/app.js", self._static)
        application.router.add_get("/app.css", self._static)
        for name, answer in _answers(self._reading).items():
            application.router.add_get(f"/api/{name}", partial(self._answered, answer))
        application.router.add_get("/api/raw", self._raw)
        return application

    @web.middleware
    async def _guarded(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        if _host_of(request.host) not in _HOSTS:
            response: web.StreamResponse = web.Response(
                status=421, text="wrong host: open the address that gym-cli view printed\n"
            )
        elif not _same(request.cookies.get(self._cookie, ""), self._session) and not (
            request.path == "/" and _same(request.query.get("token", ""), self.token)
        ):
            response = web.Response(status=403, text=_NO_SESSION)
        else:
            try:
                response = await handler(request)
            except web.HTTPException as error:
                response = web.Response(status=error.status, text=f"{error.reason}\n")
            except Exception as error:  # a fault of ours, with a row that somebody else wrote
                _log.error("the request %s failed: %s", request.path, type(error).__name__)
                _log.debug("the fault's traceback", exc_info=error)
                text = f"This cannot be shown ({type(error).__name__}).\n"
                response = web.Response(status=500, text=text)
        response.headers.update(_HEADERS)
        return response

    async def _page(self, request: web.Request) -> web.StreamResponse:
        if "token" in request.query:
            # The token leaves the address bar, and so the history and whatever is copied from it.
            response = web.Response(status=303, headers={"Location": "/"})
            response.set_cookie(
                self._cookie, self._session, httponly=True, samesite="Strict", path="/"
            )
            return response
        return _file("index.html")

    async def _static(self, request: web.Request) -> web.StreamResponse:
        return _file(request.path.removeprefix("/"))

    async def _answered(self, answer: _Answer, request: web.Request) -> web.StreamResponse:
        status = 200
        try:
            said = await self._read(answer, request)
        except UserError as error:
            status, said = 400, {"error": str(error)}
        return web.Response(body=to_json(said), status=status, content_type="application/json")

    async def _raw(self, request: web.Request) -> web.StreamResponse:
        try:
            row = await self._read(self._reading.raw, _one(request, "key"))
        except UserError as error:
            return web.Response(status=404, text=f"{error}\n")
        return web.Response(body=row, content_type="text/plain", charset="utf-8")

    async def _read(self, read: Callable[..., Any], *values: Any) -> Any:
        """Call what reads files in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, read, *values)


def _answers(reading: Reading) -> dict[str, _Answer]:
    """What is at each path of the API, as JSON values; all of it reads files."""
    store = reading.store

    def rollouts(request: web.Request) -> Json:
        filters, sort = parse_filters(_query(request)), parse_sort(_one(request, "sort", "order"))
        offset = _whole(request, "offset", 0, _MOST_OFFSET)
        limit = _whole(request, "limit", 100, _MOST_ROWS)
        return {"rows": store.listed(filters, sort, offset, limit)}

    def tokens(request: web.Request) -> Json:
        call = _whole(request, "call", 0, 1 << 31)
        thread = _whole(request, "thread", 0, 1 << 31)
        return reading.tokens(_one(request, "key"), call, thread)

    return {
        "status": lambda request: reading.status(),
        "rollouts": rollouts,
        "count": lambda request: {"count": store.counted(parse_filters(_query(request)))},
        "facets": lambda request: store.facets(),
        "rollout": lambda request: reading.rollout(_one(request, "key")),
        "tokens": tokens,
        "task": lambda request: {"rows": reading.task(_one(request, "task"))},
        "overview": lambda request: store.overview(parse_filters(_query(request))),
    }


def static_file(name: str) -> bytes:
    """A file of the built page. Raises UserError if the page was not built."""
    try:
        return files("gymmesh_view").joinpath("static", name).read_bytes()
    except OSError:
        raise UserError(
            f"the page's file {name} is missing. Build the page with `make view`, or install "
            "gymmesh from a wheel"
        ) from None


def _file(name: str) -> web.Response:
    kind, _, charset = STATIC[name].partition("; charset=")
    return web.Response(body=static_file(name), content_type=kind, charset=charset)


def _same(said: str, expected: str) -> bool:
    return hmac.compare_digest(said.encode("utf-8", "replace"), expected.encode())


def _host_of(host: str) -> str:
    """The name in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()


def _query(request: web.Request) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in request.query.items():
        if len(value) > _MOST_FIELD:
            raise UserError(f"{key[:40]}: is longer than {_MOST_FIELD} characters")
        found.setdefault(key, []).append(value)
    return found


def _one(request: web.Request, key: str, default: str | None = None) -> str:
    value = request.query.get(key, default)
    if value is None:
        raise UserError(f"{key}: is missing")
    return value


def _whole(request: web.Request, key: str, default: int, most: int) -> int:
    text = request.query.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise UserError(f"{key}: must be a whole number")
    return min(int(text), most)
