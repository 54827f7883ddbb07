"""The options of an MCP server in the configuration."""

from __future__ import annotations

import os
import shutil
from urllib.parse import urlsplit

import msgspec


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One MCP server: a program that speaks over its standard streams, or an address.

    command: the program and its arguments. env: additional environment variables. Of the service's
        own variables, the server gets only PATH, HOME, USER, LOGNAME, SHELL and TERM. cwd: the
        working directory. quiet: whether the server's error output is discarded. By default, this
        output goes to the error output of the service.
    url: the address for streamable HTTP. headers: HTTP headers of each request.
    tools: the names of the tools to offer. Default: all.
    shared: whether all sessions share one process or connection. Default: the environment's option.
    """

    command: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None
    quiet: bool = False
    url: str | None = None
    headers: dict[str, str] = {}
    tools: list[str] | None = None
    shared: bool | None = None


def check_server(name: str, server: ServerOptions) -> None:
    """Raises ValueError, in one clause, for options that are contradictory or incomplete."""
    where = f"servers.{name}"
    if bool(server.command) == (server.url is not None):
        raise ValueError(f"{where} needs either 'command' or 'url'")
    if server.url is not None:
        parts = urlsplit(server.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                f"{where}.url is {server.url!r}; write the url as http://HOST:PORT/PATH or https://HOST:PORT/PATH"
            )
        if server.env or server.cwd:
            raise ValueError(f"{where} has 'url'; 'env' and 'cwd' are only for 'command'")
        return
    if server.headers:
        raise ValueError(f"{where} has 'command'; 'headers' are only for 'url'")
    program = server.command[0]
    path = (os.environ | server.env).get("PATH")
    found = program if server.cwd and os.sep in program else shutil.which(program, path=path)
    if found is None:
        raise ValueError(f"{where}.command: there is no program {program!r}")
