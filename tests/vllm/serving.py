"""Processes that serve, and waiting until they do."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

START_S: Final = 600.0
# Compiling takes minutes, for a model that takes milliseconds.
_EAGER: Final = {"TORCHDYNAMO_DISABLE": "1"}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@contextmanager
def running(
    command: Sequence[str], url: str, log: Path, environment: Mapping[str, str]
) -> Iterator[None]:
    """A process of that command, once it answers at the URL."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=out,
            env={**os.environ, **_EAGER, **environment},
            start_new_session=True,
        )
    try:
        asyncio.run(_ready(process, url, log))
        yield
    finally:
        process.terminate()
        process.wait(60)
        with suppress(ProcessLookupError):  # what it started and left
            os.killpg(process.pid, signal.SIGKILL)


async def _ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    async with asyncio.timeout(START_S):
        while not await asyncio.to_thread(_answers, url):
            said = log.read_text(errors="replace")[-3000:]
            assert process.poll() is None, f"the process ended: {said}"
            await asyncio.sleep(1.0)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True  # it is up, and has something to say
    except OSError:
        return False
