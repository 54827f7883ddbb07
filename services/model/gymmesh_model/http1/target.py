"""Where requests go: an endpoint's address, and the part of the head that all of them share."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# Besides what is never quoted: the delimiters of RFC 3986, and what is quoted already.
_PATH_SAFE: Final = "/%:@!$&'()*+,;=~"
_QUERY_SAFE: Final = _PATH_SAFE + "?"
_OURS: Final = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "accept-encoding")
)
_PORTS: Final = {"http": 80, "https": 443}


class Target:
    """One method at one URL with its fixed headers, ready to be sent.

    url: http or https. A user and password in it become basic authentication, unless `headers`
    has an Authorization of its own. Raises ValueError, without quoting secrets, for what cannot
    be sent.
    """

    __slots__ = ("_prefix", "_sized", "host", "method", "origin", "port", "tls")

    def __init__(
        self, url: str, headers: Mapping[str, str] | None = None, *, method: str = "POST"
    ) -> None:
        parts, host, port = _split(url)
        self.method = method
        self.tls = parts.scheme == "https"
        self.host = _ascii(host)
        self.port = port or _PORTS[parts.scheme]
        self.origin = (parts.scheme, self.host, self.port)
        self._prefix = self._head(parts.path, parts.query, _with_auth(headers or {}, parts))
        self._sized = self._prefix + b"Content-Length: "

    def head(self, length: int, more: Mapping[str, str] | None = None) -> bytes:
        """A request's head. length: of its body. more: headers of this request alone."""
        if not more:
            return self._sized + b"%d\r\n\r\n" % length
        lines = "".join(header_line(name, value) for name, value in more.items())
        return b"%b%bContent-Length: %d\r\n\r\n" % (self._prefix, lines.encode("latin-1"), length)

    def _head(self, path: str, query: str, headers: Mapping[str, str]) -> bytes:
        where = quote(path or "/", safe=_PATH_SAFE)
        if query:
            where = f"{where}?{quote(query, safe=_QUERY_SAFE)}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.port != _PORTS[self.origin[0]]:
            host = f"{host}:{self.port}"
        if not _TOKEN.fullmatch(self.method):
            raise ValueError("the method is not a token")
        lines = [f"{self.method} {where} HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: identity\r\n"]
        lines += (header_line(name, value) for name, value in headers.items())
        return "".join(lines).encode("latin-1")


def header_line(name: str, value: str) -> str:
    """One line of a head. Raises ValueError for a header that is no header or set here."""
    if not _TOKEN.fullmatch(name):
        raise ValueError("a header's name is not a token")
    if name.lower() in _OURS:
        raise ValueError(f"the header {name} is set by the client itself")
    line = f"{name}: {value.strip()}\r\n"
    try:
        raw = value.encode("latin-1")
    except UnicodeEncodeError:
        raise ValueError(f"the header {name} has a character beyond Latin-1") from None
    if any((byte < 0x20 and byte != 0x09) or byte == 0x7F for byte in raw):
        raise ValueError(f"the header {name} has a control character")
    return line


def _split(url: str) -> tuple[SplitResult, str, int | None]:
    """The URL's parts, host and port, without the words of a parser that quotes them."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError("the URL's host or port cannot be read") from None
    if parts.scheme not in _PORTS or not host:
        raise ValueError("the URL is none of http or https")
    return parts, host, port


def _with_auth(headers: Mapping[str, str], parts: SplitResult) -> Mapping[str, str]:
    user, password = parts.username, parts.password
    if user is None or any(name.lower() == "authorization" for name in headers):
        return headers
    pair = f"{unquote(user)}:{unquote(password or '')}".encode()
    return {**headers, "Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def _ascii(host: str) -> str:
    if not host.isascii():
        host = host.encode("idna").decode("ascii")
    # urlsplit lets through what a head must not contain.
    if re.search(r"[^0-9a-z.:_\-%]", host):
        raise ValueError("the URL's host has a character that it must not have")
    return host
