"""Which proxy the environment names for a URL (`HTTP_PROXY`, `HTTPS_PROXY`, less `NO_PROXY`)."""

from __future__ import annotations

import urllib.request
from typing import Final
from urllib.parse import urlsplit

_LOCAL: Final = ("", "localhost", "127.0.0.1", "::1")


def proxy_of(url: str) -> str | None:
    """The proxy's URL; None for a host that is reached directly, as this machine always is.

    Raises ValueError for a proxy that speaks no HTTP.
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
        raise ValueError(f"the proxy of the environment variable {variable} is no HTTP proxy")
    return proxy
