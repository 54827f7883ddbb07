"""Processes that serve, and waiting until they do."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gymmesh_model.vllm import process as managed

START_S: Final = 600.0
STOP_S: Final = 30.0
# What guards a managed vLLM guards these, too: an engine notices no end of its server.
_GUARD: Final = Path(managed.__file__).with_name("_guard.py")
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
    """A process of that command, once it answers at the URL.

    It ends with the block and with this process, even one that is killed, and so does all that it
    started.
    """
    order = {
        "argv": list(command),
        "env": {**os.environ, **_EAGER, **environment},
        "stop_s": STOP_S,
    }
    with log.open("wb") as out:
        guard = subprocess.Popen(
            [sys.executable, "-P", str(_GUARD)],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    assert guard.stdin is not None  # a pipe
    try:
        guard.stdin.write(json.dumps(order).encode() + b"\n")
        guard.stdin.flush()
        _wait_until_ready(guard, url, log)
        yield
    finally:
        guard.stdin.close()
        guard.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Blocks, so that a fixture may call it whether or not a loop runs."""
    deadline = time.monotonic() + START_S
    while not _answers(url):
        said = log.read_text(errors="replace")[-3000:]
        assert process.poll() is None, f"the process ended: {said}"
        assert time.monotonic() < deadline, f"it did not answer within {START_S:g} s: {said}"
        time.sleep(1.0)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True  # it is up, and has something to say
    except OSError:
        return False
