"""The target of a request to the proxy, by its first line and headers. Pure.

Host names are compared in a normal form: lower case, without a dot at the end; IP addresses as
`ipaddress` writes them. A name without a normal form is refused, so that no later reader of the
same bytes (a resolver, a server) can read it as another host.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_LARGEST_PORT: Final = 65_535
_HTTP_PORT: Final = 80
_NAME_BYTES: Final = 253
_NAME: Final = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_-]{1,63}")
_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:@/?#\\\s]+)(?::([0-9]{1,5}))?")
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(.*)", re.DOTALL)


class RefusedError(Exception):
    """The proxy refuses a request: the status and one line of text for the program that made it."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status
        self.line = line


@dataclass(frozen=True, slots=True)
class ProxyTarget:
    """The target of a request.

    Attributes:
        host: a name or an address in the form of `host_form`.
        port: 1 to 65535.
        path: the path requested from the server; empty: the request is CONNECT and opens a tunnel.
    """

    host: str
    port: int
    path: str = ""

    @property
    def authority(self) -> str:
        """The value of the header Host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.path and self.port == _HTTP_PORT else f"{host}:{self.port}"


def host_form(text: str) -> str:
    """The normal form of a host's name or address; empty: it is neither."""
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    if "%" in text:  # an address with a zone means something on one machine only
        return ""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        name = text.lower().removesuffix(".")
    named = name.isascii() and len(name) <= _NAME_BYTES and _NAME.fullmatch(name)
    return name if named else ""


def target_of(method: bytes, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> ProxyTarget:
    """The target of a request. `headers`: their names in lower case. Raises RefusedError."""
    try:
        text = target.decode("ascii")
    except UnicodeDecodeError:
        raise RefusedError(400, "The request's target is not ASCII.") from None
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) > 1:
        raise RefusedError(400, "The request has several Host headers.")
    if method == b"CONNECT":
        host, port = _authority(text, None)
        return ProxyTarget(host, port)
    url = _URL.fullmatch(text)
    if url is None or url[1].lower() != "http":
        raise RefusedError(400, "A request to the proxy must be CONNECT, or have an http:// URL.")
    host, port = _authority(url[2], _HTTP_PORT)
    path = url[3].partition("#")[0]
    found = ProxyTarget(host, port, path if path.startswith("/") else f"/{path}")
    if hosts and _authority(hosts[0].decode("latin-1").strip(), _HTTP_PORT) != (host, port):
        raise RefusedError(
            400, "The header Host differs from the host or port of the request's URL."
        )
    framings = {name for name, _ in headers} & {b"content-length", b"transfer-encoding"}
    if len(framings) > 1:
        raise RefusedError(400, "The request has both Content-Length and Transfer-Encoding.")
    return found


def _authority(text: str, default_port: int | None) -> tuple[str, int]:
    """HOST or HOST:PORT; `default_port` None: the port is required."""
    parts = _AUTHORITY.fullmatch(text)
    host = host_form(parts[1]) if parts else ""
    if parts is None or not host:
        raise RefusedError(400, f"{text[:100]!r} is not a host and a port.")
    port = int(parts[2]) if parts[2] else default_port
    if port is None or not 1 <= port <= _LARGEST_PORT:
        raise RefusedError(400, f"{text[:100]!r} has no port between 1 and {_LARGEST_PORT}.")
    return host, port
