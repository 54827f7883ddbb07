"""The server of RunService in a collector's process."""

from __future__ import annotations

import os
import secrets
from typing import Final

from gymmesh_client.control.handle import RunHandle
from gymmesh_client.control.registry import RunEntry, remove_entry, write_entry
from gymmesh_client.control.servicer import RUN_SERVICE, RunServicer
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.wire.server import MeshServer

_LOOPBACK: Final = "127.0.0.1"
# For streams of groups, which end with their run unless their readers are slow.
_STOP_S: Final = 5.0
_TOKEN_BYTES: Final = 32


class RunServer:
    """Serves runs on loopback while it is open, and registers each.

    Use as an asynchronous context manager. Raises OSError when there is no port for it, or a run
    cannot be registered.
    """

    def __init__(self) -> None:
        self._token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._servicer = RunServicer(self._token)
        self._server = MeshServer([Binding(RUN_SERVICE, self._servicer)], mux=False)
        self._entries: list[RunEntry] = []
        self._port = 0

    async def __aenter__(self) -> RunServer:
        self._port = await self._server.start(_LOOPBACK, 0)
        await self._server.set_serving(True)
        return self

    async def __aexit__(self, *_: object) -> None:
        for entry in self._entries:
            remove_entry(entry)
        await self._server.stop(_STOP_S)

    def add(self, run: RunHandle, output: str) -> None:
        """Serve a run whose rows go to `output`."""
        self._servicer.add(run)
        entry = RunEntry(run.run_id, f"{_LOOPBACK}:{self._port}", self._token, os.getpid(), output)
        write_entry(entry)
        self._entries.append(entry)
