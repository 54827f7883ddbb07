"""How model backends fetch answers: one interface, and the errors that every transport raises.

`gymmesh_model.transport.client` implements it over HTTP with aiohttp, and
`gymmesh_model.backends.vllm.in_process` by calling an ASGI application. Only `client` and what is
below it import aiohttp.
"""

from gymmesh_model.transport.base import (
    MAX_BODY,
    Body,
    ConnectFailed,
    ConnectionLost,
    ConnectTimedOut,
    HttpAnswer,
    ProtocolViolated,
    StreamedAnswer,
    TooLarge,
    Transport,
    TransportError,
)

__all__ = [
    "MAX_BODY",
    "Body",
    "ConnectFailed",
    "ConnectTimedOut",
    "ConnectionLost",
    "HttpAnswer",
    "ProtocolViolated",
    "StreamedAnswer",
    "TooLarge",
    "Transport",
    "TransportError",
]
