"""Asks the proxy of a sandbox, as its environment names it: `ask_proxy.py GET|CONNECT TARGET …`.

Writes the status of each answer, and of a page that came its text.
"""

from __future__ import annotations

import os
import sys
from http.client import HTTPConnection
from urllib.parse import urlsplit

_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")


def main() -> None:
    """See the module."""
    (proxy,) = {urlsplit(os.environ[name]) for name in _NAMES}
    method, *targets = sys.argv[1:]
    for target in targets:
        connection = HTTPConnection(str(proxy.hostname), proxy.port or 80, timeout=30)
        if method == "GET":
            connection.request("GET", target)
            answer = connection.getresponse()
            print(answer.status, *([answer.read().decode()] if answer.status == 200 else []))
        else:
            host, _, port = target.rpartition(":")
            connection.set_tunnel(host, int(port))
            try:
                connection.request("GET", "/")
                print(200, connection.getresponse().read().decode())
            except OSError as error:
                print(next(word for word in str(error).split() if word.isdigit()))
        connection.close()


if __name__ == "__main__":
    main()
