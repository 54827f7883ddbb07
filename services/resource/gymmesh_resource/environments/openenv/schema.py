"""The schema of a server's actions, read once for all sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import aiohttp

from gymmesh_resource.environments._remote_http import body_of
from gymmesh_resource.environments.openenv.actions import UnknownSchema
from gymmesh_responses import CodecError, loads

#: Of the schema, below the server's root.
PATH: Final = "/schema"


class SchemaRefused(UnknownSchema):
    """The server answered another status than 200."""

    def __init__(self, status: int) -> None:
        self.status, self.path = status, PATH
        super().__init__(f"GET {PATH} answered {status}")


class SchemaReader:
    """Reads `GET /schema` of one server, and keeps what it says until `forget`."""

    def __init__(self, url: str, max_bytes: int) -> None:
        self._url = url + PATH
        self._max_bytes = max_bytes
        self._actions: Mapping[str, Any] | None = None
        self._reading = asyncio.Lock()

    def forget(self) -> None:
        """Read it again for the next session: the server may be another one."""
        self._actions = None

    async def actions(self, http: aiohttp.ClientSession) -> Mapping[str, Any]:
        """The JSON Schema of an action.

        Takes as long as the server does: bound it outside. Raises UnknownSchema, SchemaRefused.
        """
        async with self._reading:
            if self._actions is None:
                self._actions = await self._read(http)
            return self._actions

    async def _read(self, http: aiohttp.ClientSession) -> Mapping[str, Any]:
        try:
            async with http.get(self._url, allow_redirects=False) as response:
                if response.status != 200:
                    raise SchemaRefused(response.status)
                body = await body_of(response, self._max_bytes)
        except (aiohttp.ClientError, TimeoutError) as error:
            problem = f"GET /schema: {type(error).__name__}: {error}"
            raise UnknownSchema(problem[:300]) from error
        if body is None:
            raise UnknownSchema(f"GET /schema answered with more than {self._max_bytes} bytes")
        try:
            document = loads(body)
        except CodecError as error:
            raise UnknownSchema(f"GET /schema did not answer with JSON: {error}"[:300]) from None
        action = document.get("action") if isinstance(document, dict) else None
        if not isinstance(action, dict):
            raise UnknownSchema("GET /schema returned no schema of actions")
        return action
