"""Turns what aiohttp raises into the transport's errors."""

from __future__ import annotations

import errno
import os
import ssl
from typing import Final

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from gymmesh_model.transport.base import (
    ConnectFailed,
    ConnectionLost,
    ConnectTimedOut,
    ProtocolViolated,
    TooLarge,
    TransportError,
)
from gymmesh_model.transport.connector import Link

_CLOSED: Final = "connection closed by the endpoint"
_CODES: Final = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: _CLOSED,
    errno.EPIPE: _CLOSED,
    errno.ETIMEDOUT: "no answer from the host",
}


def typed(failure: BaseException, link: Link, connect_timeout: float = 0.0) -> TransportError:
    """The error that a failure of a request is.

    link: the request's connection. connect_timeout: seconds.
    """
    if isinstance(failure, aiohttp.ConnectionTimeoutError):
        return ConnectTimedOut(f"no connection within {connect_timeout:g} s")
    if isinstance(failure, aiohttp.ClientConnectorError | aiohttp.ClientConnectorCertificateError):
        return ConnectFailed(_cause(failure, "handshake failed"))
    if isinstance(failure, aiohttp.ClientHttpProxyError):
        return ConnectFailed(f"the proxy answered HTTP {failure.status}")
    if isinstance(failure, aiohttp.InvalidURL):
        return ConnectFailed("the URL's host is invalid")
    if isinstance(failure, aiohttp.ClientResponseError):
        return _violation(failure.__cause__, "the response's head is not valid HTTP/1.1")
    if isinstance(failure, aiohttp.ClientPayloadError):
        broken = link.protocol.exception() if link.protocol is not None else None
        if isinstance(broken, HttpProcessingError):
            return _violation(broken, "the response's body is not valid HTTP/1.1")
        return ConnectionLost("connection broke during the answer")
    return ConnectionLost(_cause(failure, "connection broke"))


def _violation(failure: BaseException | None, what: str) -> TransportError:
    """failure: aiohttp's error of its parser, whose cause is the parser's own."""
    inner = failure.__cause__ if failure is not None else None
    said = failure.message if isinstance(failure, HttpProcessingError) else ""
    if isinstance(inner, LineTooLong) or said.startswith("Too many headers"):
        return TooLarge("the response's headers are larger than allowed")
    # What follows the first words quotes the answer.
    reason = said.partition("\n")[0].partition(":")[0].strip().lower()
    return ProtocolViolated(f"{what} ({reason})" if reason else what)


def _cause(failure: BaseException, in_tls: str) -> str:
    """A few words without addresses, which may hold a user's name and password."""
    if isinstance(failure, aiohttp.ClientConnectorDNSError):
        return "the host name cannot be resolved"
    if isinstance(failure, aiohttp.ClientConnectorCertificateError):
        return _cause(failure.certificate_error, in_tls)
    if isinstance(failure, aiohttp.ClientConnectorError):
        return _cause(failure.os_error, in_tls)
    if isinstance(failure, ssl.SSLCertVerificationError):
        return f"TLS: {failure.verify_message}"
    if isinstance(failure, ssl.SSLError):
        return f"TLS: {failure.reason or in_tls}"
    if not isinstance(failure, OSError) or isinstance(failure, ConnectionResetError):
        return _CLOSED
    code = failure.errno or 0
    if code in _CODES:
        return _CODES[code]
    return os.strerror(code) if code else type(failure).__name__
