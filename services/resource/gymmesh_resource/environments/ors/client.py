"""Speaks the HTTP API of the Open Reward Standard.

Invariant: a stream that breaks off is not taken up again: whether its tool has run is unknown then.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from gymmesh_resource.environments._remote_http import CONNECT_S, body_of, http_client
from gymmesh_resource.environments.ors.events import EventReader
from gymmesh_responses import CodecError, bytes_to_text, dumps, loads

_SHOWN: Final = 500
# What a server answers while a session's setup still runs, and how often it is asked again.
_STARTING: Final = "starting"
_POLL_S: Final = 0.5
_MOST_POLL_S: Final = 10.0


class NoOrsAnswer(Exception):
    """The server cannot be reached, broke off, or sent what is no answer; one clause says which."""


class Refused(Exception):
    """An HTTP error: its status, and what the server says of it."""

    def __init__(self, status: int, detail: str) -> None:
        self.status, self.detail = status, detail
        super().__init__(f"it answered {status}{f': {detail}' if detail else ''}")


class ToolRaised(Exception):
    """The tool's own code failed; the text is the server's."""


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """How requests prove who they are. `secrets`: for the environments' own use, by name."""

    key: str = ""
    secrets: Mapping[str, str] | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers of each request."""
        return {"X-API-Key": self.key} if self.key else {}

    @property
    def secrets_header(self) -> dict[str, str]:
        """The header that carries the secrets when a session opens."""
        if not self.secrets:
            return {}
        written = dumps({name: {"value": value} for name, value in self.secrets.items()})
        return {"X-Secrets": base64.b64encode(written).decode()}


class OrsClient:
    """One server. `url`: its root, without a slash at the end. To be made inside an event loop."""

    def __init__(
        self,
        url: str,
        access: ServerAccess,
        *,
        headers: Mapping[str, str],
        max_connections: int,
        max_bytes: int,
    ) -> None:
        self._url = url
        self._access = access
        self._max_bytes = max_bytes
        self._http = http_client({**headers, **access.headers}, max_connections=max_connections)

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()

    async def get(self, path: str, sid: str = "") -> Any:
        """What the server answers to a GET, as JSON. Raises NoOrsAnswer, Refused.

        Takes as long as the server does: bound it outside.
        """
        return await self._json("GET", path, None, _session(sid))

    async def get_when_started(self, path: str, sid: str) -> Any:
        """As `get`, once the session's setup has ended."""
        while True:
            try:
                return await self.get(path, sid)
            except _Starting as error:
                await asyncio.sleep(error.retry_s)

    async def post(self, path: str, body: Any, sid: str = "") -> Any:
        """What the server answers to a POST, as JSON. Raises as `get` does."""
        return await self._json("POST", path, body, _session(sid))

    async def create(self, sid: str, body: Mapping[str, Any]) -> None:
        """Open the session's environment, with the secrets. Raises as `get` does.

        Servers of ors-sdk read secrets in the body, and those of openreward in a header: these
        refuse the body.
        """
        headers = _session(sid) | self._access.secrets_header
        if self._access.secrets:
            try:
                await self._json(
                    "POST", "create", {**body, "secrets": dict(self._access.secrets)}, headers
                )
                return
            except Refused as error:
                if error.status != 422 or "secrets" not in error.detail:
                    raise
        await self._json("POST", "create", body, headers)

    async def new_session(self) -> str:
        """The id of a new session. Raises NoOrsAnswer, Refused."""
        sid, _ = await self._stream("create_session", {}, "")
        if not sid:
            raise NoOrsAnswer("it returned no id for the new session")
        return sid

    async def call(self, environment: str, tool: str, arguments: Any, sid: str) -> Any:
        """What a tool answers, as JSON. Raises NoOrsAnswer, Refused, ToolRaised."""
        body = {"name": tool, "input": arguments}
        _, text = await self._stream(f"{environment}/call", body, sid)
        return _parsed(text)

    async def _json(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Any:
        data = None if body is None else dumps(body)
        sent = {**headers, "Content-Type": "application/json"} if body is not None else headers
        try:
            async with self._http.request(
                method, f"{self._url}/{path}", data=data, headers=sent, allow_redirects=False
            ) as response:
                await self._check(response)
                whole = await self._body(response)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _no_answer(error) from error
        return _parsed(whole)

    async def _stream(self, path: str, body: Any, sid: str) -> tuple[str, str]:
        """The id and the whole text of a stream of events."""
        headers = _session(sid) | {
            "Accept": "text/event-stream",
            "Content-Type": "application/json",
        }
        reader, parts, stream_id, size = EventReader(), [], "", 0
        try:
            async with self._http.post(
                f"{self._url}/{path}", data=dumps(body), headers=headers, allow_redirects=False
            ) as response:
                await self._check(response)
                async for chunk in response.content.iter_any():
                    size += len(chunk)
                    if size > self._max_bytes:
                        raise NoOrsAnswer(f"its stream has more than {self._max_bytes} bytes")
                    for event, data in reader.feed(chunk):
                        if event == "task_id":
                            stream_id = data.strip()
                        elif event == "error":
                            raise ToolRaised(data[:_SHOWN])
                        elif event in ("chunk", "end"):
                            parts.append(data)
                        if event == "end":
                            return stream_id, "".join(parts)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _no_answer(error) from error
        raise NoOrsAnswer("its stream ended without an answer")

    async def _check(self, response: aiohttp.ClientResponse) -> None:
        if 200 <= response.status < 300:
            return
        detail = _detail(await self._body(response))
        if response.status == 503 and response.headers.get("X-Backend-State") == _STARTING:
            raise _Starting(detail, _retry_s(response.headers.get("Retry-After", "")))
        raise Refused(response.status, detail)

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        body = await body_of(response, self._max_bytes)
        if body is None:
            raise NoOrsAnswer(f"its answer has more than {self._max_bytes} bytes")
        return body


class _Starting(Refused):
    """The session's setup still runs. `retry_s`: after how many seconds to ask again."""

    def __init__(self, detail: str, retry_s: float) -> None:
        self.retry_s = retry_s
        super().__init__(503, detail)


def _session(sid: str) -> dict[str, str]:
    return {"X-Session-ID": sid} if sid else {}


def _no_answer(error: Exception) -> NoOrsAnswer:
    if isinstance(error, TimeoutError):
        return NoOrsAnswer(f"it accepted no connection within {CONNECT_S:g} s")
    return NoOrsAnswer(f"{type(error).__name__}: {error}"[:_SHOWN])


def _parsed(text: str | bytes) -> Any:
    try:
        return loads(text)
    except CodecError as error:
        raise NoOrsAnswer(f"its answer is not JSON: {error}"[:_SHOWN]) from None


def _detail(body: bytes) -> str:
    """What an error's body says, as FastAPI writes it."""
    try:
        document = loads(body)
        detail = document["detail"] if isinstance(document, dict) else document
        return (detail if isinstance(detail, str) else bytes_to_text(dumps(detail)))[:_SHOWN]
    except (CodecError, KeyError):
        return body[:_SHOWN].decode("utf-8", "replace")


def _retry_s(written: str) -> float:
    seconds = float(written) if written.isascii() and written.isdecimal() else _POLL_S
    return min(max(seconds, _POLL_S), _MOST_POLL_S)
