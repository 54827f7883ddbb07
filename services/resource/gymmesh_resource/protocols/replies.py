"""Shared by the HTTP edges of all protocols: reads bodies, writes documents and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import grpc
from aiohttp import web

from gymmesh_resource.protocols.session import words_of
from gymmesh_responses import CodecError, JsonValue, dumps, loads
from gymmesh_runtime.errors import MeshError, field_invalid

_BODY_S: Final = 60.0
_Code = grpc.StatusCode
_STATUS: Final[Mapping[grpc.StatusCode, HTTPStatus]] = {
    _Code.INVALID_ARGUMENT: HTTPStatus.UNPROCESSABLE_ENTITY,
    _Code.FAILED_PRECONDITION: HTTPStatus.CONFLICT,
    _Code.ABORTED: HTTPStatus.CONFLICT,
    _Code.NOT_FOUND: HTTPStatus.NOT_FOUND,
    _Code.RESOURCE_EXHAUSTED: HTTPStatus.TOO_MANY_REQUESTS,
    _Code.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    _Code.DEADLINE_EXCEEDED: HTTPStatus.GATEWAY_TIMEOUT,
    _Code.UNIMPLEMENTED: HTTPStatus.NOT_IMPLEMENTED,
}


class HttpRefusal(Exception):
    """The request is answered with an HTTP status and a sentence."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status

    def answer(self) -> web.Response:
        """The answer."""
        return document({"detail": str(self)}, self.status)


async def read_body(request: web.Request) -> bytes:
    """A request's body. Raises HttpRefusal for a body that arrives too slowly. The server refuses a
    body that is too large.
    """
    try:
        async with asyncio.timeout(_BODY_S):
            return await request.read()
    except TimeoutError:
        raise HttpRefusal(HTTPStatus.REQUEST_TIMEOUT, "the body did not arrive in time") from None


async def read_object(request: web.Request) -> dict[str, Any]:
    """A request's body, a JSON object; empty where there is none.

    Raises MeshError FIELD_INVALID, and HttpRefusal.
    """
    body = await read_body(request)
    return object_of(body) if body else {}


def object_of(text: bytes | str) -> dict[str, Any]:
    """A JSON object. Raises MeshError FIELD_INVALID."""
    try:
        document = loads(text)
    except CodecError as error:
        raise field_invalid("body", f"is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise field_invalid("body", "is not a JSON object")
    return document


def document(value: JsonValue, status: int = HTTPStatus.OK) -> web.Response:
    """A JSON answer."""
    return web.Response(body=dumps(value), status=status, content_type="application/json")


def status_of(error: MeshError) -> int:
    """The HTTP status of an error."""
    return _STATUS.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR)


def error_answer(error: MeshError, status: int | None = None) -> web.Response:
    """An error as JSON: `detail` for people, `reason` for programs."""
    body: JsonValue = {"detail": words_of(error), "reason": error.reason_name}
    return document(body, status_of(error) if status is None else status)


def text_field(body: Mapping[str, Any], name: str) -> str:
    """A text of a body; empty where there is none. Raises FIELD_INVALID for another type."""
    value = body.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise field_invalid(name, "must be text")
    return value


def whole_number(body: Mapping[str, Any], name: str) -> int | None:
    """A whole number of a body, or None. Raises FIELD_INVALID for another type."""
    value = body.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise field_invalid(name, "must be a whole number")


def object_field(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object of a body; empty where there is none. Raises FIELD_INVALID for another type."""
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise field_invalid(name, "must be an object")
    return value
