"""Turns what aiohttp raises into the transport's errors."""

from __future__ import annotations

import errno
import os
import ssl
from typing import Final

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from gymmesh_model.transport.connector import Link
from gymmesh_model.transport.errors import (
    ConnectFailed,
    ConnectionLost,
    ConnectTimedOut,
    ProtocolViolated,
    TooLarge,
    TransportError,
)

_CLOSED: Final = "connection closed by the endpoint"


def typed(failure: BaseException, link: Link, connect_timeout: float = 0.0) -> TransportError:
    """The error that a failure of a request is.

    link: the request's connection. connect_timeout: seconds.
    """
    if isinstance(failure, aiohttp.ConnectionTimeoutError):
        return ConnectTimedOut(f"no connection within {connect_timeout:g} s")
    if isinstance(failure, aiohttp.ClientConnectorError | aiohttp.ClientConnectorCertificateError):
        return ConnectFailed(_connect_cause(failure))
    if isinstance(failure, aiohttp.ClientHttpProxyError):
        return ConnectFailed(f"the proxy answered HTTP {failure.status}")
    if isinstance(failure, aiohttp.InvalidURL):
        return ConnectFailed("the URL's host cannot be called")
    if isinstance(failure, aiohttp.ClientResponseError):
        return _violation(failure.__cause__, "its head is not one of HTTP/1.1")
    if isinstance(failure, aiohttp.ClientPayloadError):
        broken = link.protocol.exception() if link.protocol is not None else None
        if isinstance(broken, HttpProcessingError):
            return _violation(broken, "its body is not one of HTTP/1.1")
        return ConnectionLost("connection broke inside the answer")
    return ConnectionLost(_lost_cause(failure))


def _violation(failure: BaseException | None, what: str) -> TransportError:
    """failure: aiohttp's error of its parser, whose cause is the parser's own."""
    inner = failure.__cause__ if failure is not None else None
    said = failure.message if isinstance(failure, HttpProcessingError) else ""
    if isinstance(inner, LineTooLong) or said.startswith("Too many headers"):
        return TooLarge("its head is larger than allowed")
    # What follows the first words quotes the answer.
    reason = said.partition("\n")[0].partition(":")[0].strip().lower()
    return ProtocolViolated(f"{what} ({reason})" if reason else what)


def _connect_cause(failure: BaseException) -> str:
    if isinstance(failure, aiohttp.ClientConnectorDNSError):
        return "the host's name is not known"
    if isinstance(failure, aiohttp.ClientConnectorCertificateError):
        inner: BaseException = failure.certificate_error
    else:
        assert isinstance(failure, aiohttp.ClientConnectorError)
        inner = failure.os_error
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"TLS: {inner.verify_message}"
    if isinstance(inner, ssl.SSLError):
        return f"TLS: {inner.reason or 'handshake failed'}"
    return _system_cause(inner)


def _lost_cause(failure: BaseException) -> str:
    if isinstance(failure, aiohttp.ServerDisconnectedError | ConnectionResetError):
        return _CLOSED
    if isinstance(failure, ssl.SSLError):
        return f"TLS: {failure.reason or 'connection broke'}"
    return _system_cause(failure) if isinstance(failure, OSError) else _CLOSED


def _system_cause(failure: BaseException) -> str:
    """A few words without addresses, which may hold a user's name and password."""
    code = failure.errno if isinstance(failure, OSError) else None
    if code == errno.ECONNREFUSED:
        return "connection refused"
    if code in (errno.ECONNRESET, errno.EPIPE) or isinstance(failure, ConnectionResetError):
        return _CLOSED
    if code == errno.ETIMEDOUT:
        return "no answer from the host"
    return os.strerror(code) if code else type(failure).__name__
