"""Where requests go and what their heads say, checked before anything is sent."""

from __future__ import annotations

import base64
import re
import urllib.request
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from multidict import CIMultiDict
from yarl import URL

IS_FACE = True  # see tools/import_faces.py

_LOCAL: Final = ("", "localhost", "127.0.0.1", "::1")
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_OURS: Final = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "accept-encoding")
)


class HttpTarget:
    """A URL with the fixed headers of its requests.

    url: http or https. A user and password in it become basic authentication, unless `headers`
    has an Authorization of its own. Raises ValueError, without quoting secrets, for what cannot
    be sent.
    """

    __slots__ = ("_headers", "proxy", "url")

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = _split(url)
        try:
            self.url = URL(url).with_user(None)
        except ValueError:
            raise ValueError("the URL is invalid") from None
        self.proxy = _proxy_of(url)
        fixed = {**_with_auth(checked(headers), parts), "Accept-Encoding": "identity"}
        self._headers = CIMultiDict(fixed)  # what aiohttp takes without a copy

    def headers(self, more: Mapping[str, str] | None) -> CIMultiDict[str]:
        """A request's headers. more: those of this request alone. Raises ValueError."""
        return CIMultiDict({**self._headers, **checked(more)}) if more else self._headers


def checked(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers, without blanks around their values.

    Raises ValueError for one that cannot be sent or that the client sets itself.
    """
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name):
            raise ValueError("a header's name has an invalid character")
        if name.lower() in _OURS:
            raise ValueError(f"the HTTP client sets the header {name}: remove this header")
        if any(ord(char) > 0xFF for char in value):
            raise ValueError(f"the header {name} has a character outside Latin-1")
        if any((char < " " and char != "\t") or char == "\x7f" for char in value):
            raise ValueError(f"the header {name} has a control character")
    return {name: value.strip() for name, value in headers.items()}


def _split(url: str) -> SplitResult:
    """The URL's parts, without the words of a parser that quotes them."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError("the URL's host or port is invalid") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError("the URL must begin with http:// or https://")
    # urlsplit lets through what a head must not contain.
    if re.search(r"[^0-9a-z.:_\-%]", host if host.isascii() else host.encode("idna").decode()):
        raise ValueError("the URL's host has an invalid character")
    return parts


def _with_auth(headers: dict[str, str], parts: SplitResult) -> dict[str, str]:
    user, password = parts.username, parts.password
    if user is None or any(name.lower() == "authorization" for name in headers):
        return headers
    pair = f"{unquote(user)}:{unquote(password or '')}".encode()
    return {**headers, "Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def _proxy_of(url: str) -> str | None:
    """The proxy of the environment (`HTTP_PROXY`, `HTTPS_PROXY`, less `NO_PROXY`).

    None for a host that is reached directly, as this machine always is. Raises ValueError for one
    that speaks no HTTP.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxy = None if host in _LOCAL else urllib.request.getproxies().get(parts.scheme)
    if proxy is None or urllib.request.proxy_bypass(host):
        return None
    if "://" not in proxy:  # a host and port alone
        proxy = f"http://{proxy}"
    if not proxy.startswith(("http://", "https://")):
        variable = f"{parts.scheme}_proxy"
        raise ValueError(f"the proxy in the environment variable {variable} is not an HTTP proxy")
    return proxy
