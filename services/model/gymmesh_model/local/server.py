"""Runs llama.cpp's own HTTP server (from the `xllamacpp` package) for one GGUF file.

The server lives in a process of its own: a crash in native code, or both cores busy with
matrix products, must not stop the service's event loop, and a process can always be ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

from gymmesh_model.local.errors import ServerError
from gymmesh_runtime.extras import Extra
from gymmesh_runtime.processes import write_to
from gymmesh_runtime.serving import usable_processors

_EXTRA: Final = Extra("local", ("xllamacpp",))
_LOG_TAIL_BYTES: Final = 800
_STOP_SECONDS: Final = 5.0
# llama.cpp's log levels: 1 errors, 2 warnings too, 3 also information.
_VERBOSITY: Final = 1


class LocalServer:
    """A model server on a loopback port that only the holder of its key can use.

    gguf: the weights.
    threads: of computation; by default one per core that this process may use.
    context: tokens of context per slot, prompt and answer together.
    parallel_slots: requests computed together (continuous batching); more requests than
        slots wait in the server.
    start_seconds: how long loading may take.

    Also an async context manager. A stopped server may be started again.
    """

    def __init__(
        self,
        gguf: Path,
        threads: int | None = None,
        context: int = 2048,
        parallel_slots: int = 4,
        start_seconds: float = 120.0,
    ) -> None:
        self._settings: dict[str, Any] = {
            "path": str(gguf),
            "threads": threads or usable_processors(),
            "context": context,
            "slots": parallel_slots,
            "verbosity": _VERBOSITY,
        }
        self._start_seconds = start_seconds
        self._process: asyncio.subprocess.Process | None = None
        self._log: IO[bytes] | None = None
        self._api_key = ""
        self.base_url = ""
        """`http://127.0.0.1:PORT/v1`; empty until started."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that a request needs (a bearer key, new at every start)."""
        return {"Authorization": f"Bearer {self._api_key}"}

    @property
    def running(self) -> bool:
        """Whether the process is alive; when it died by itself, `log_tail` may say why."""
        return self._process is not None and self._process.returncode is None

    def log_tail(self) -> str:
        """The end of what the server printed, at most 800 bytes of it."""
        if self._log is None:
            return ""
        # Not seek and read: the child writes at the file position that both share.
        descriptor = self._log.fileno()
        start = max(0, os.fstat(descriptor).st_size - _LOG_TAIL_BYTES)
        return os.pread(descriptor, _LOG_TAIL_BYTES, start).decode(errors="replace").strip()

    async def start(self) -> str:
        """Load the model and serve; returns `base_url`. Starting twice is starting once.

        Raises ServerError when xllamacpp is missing, or when the server ends or is not
        ready within `start_seconds`; nothing is left running then.
        """
        if self.running:
            return self.base_url
        if problem := _EXTRA.problem("the embedded model"):
            raise ServerError(f"{problem}, or give an endpoint with --model-url")
        await self.stop()
        try:
            async with asyncio.timeout(self._start_seconds):
                address = await self._spawn()
        except TimeoutError:
            raise await self._failed(f"was not ready within {self._start_seconds:g} s") from None
        except BaseException:
            await self.stop()
            raise
        self.base_url = f"{address}/v1"
        return self.base_url

    async def stop(self) -> None:
        """End the process, by force after 5 s. Requests under way are cut off."""
        process, self._process = self._process, None
        self.base_url = ""
        if process is not None and process.returncode is None:
            if process.stdin is not None:
                process.stdin.close()
            try:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), _STOP_SECONDS)
            finally:
                # Also when this very stop is cancelled: no process may stay behind.
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
                    await process.wait()
        if self._log is not None:
            self._log.close()
            self._log = None

    async def __aenter__(self) -> LocalServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _spawn(self) -> str:
        self._api_key = secrets.token_urlsafe(32)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        self._process = await asyncio.create_subprocess_exec(
            # By path and with no path added (-P): the child needs nothing of this package, and
            # must not take its modules for top-level ones.
            *(sys.executable, "-P", str(Path(__file__).with_name("_child.py"))),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._log,
            # Ctrl-C goes to the whole foreground group; the service stops the server in order.
            start_new_session=True,
        )
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None  # both are pipes, see above
        assert stdout is not None
        # By the pipe: arguments and environment can be read by other users.
        order = json.dumps({**self._settings, "api_key": self._api_key}).encode() + b"\n"
        with contextlib.suppress(ConnectionError):
            write_to(stdin, order)
            await stdin.drain()
        line = await stdout.readline()
        if not line:
            code = await self._process.wait()
            raise await self._failed(f"ended with code {code}")
        return str(json.loads(line)["address"])

    async def _failed(self, what: str) -> ServerError:
        tail = self.log_tail()
        await self.stop()
        end = f"; its log ends: {tail}" if tail else ""
        return ServerError(f"the model server for {self._settings['path']} {what}{end}")
