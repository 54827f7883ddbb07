"""Real runs for the browser's tests: an endpoint in a thread, and gym-cli as processes."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.support import endpoint as fake
from tests.support.cli import solve
from tests.support.endpoint import FakeEndpoint, Seen

_ROOT: Final = Path(__file__).resolve().parents[2]
_WAIT_S: Final = 100.0


class Endpoint:
    """An endpoint of models.

    Attributes:
        url: where it is.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, permits: asyncio.Semaphore) -> None:
        self.url = ""
        self._loop = loop
        self._permits = permits

    def answer(self, calls: int) -> None:
        """Let so many more model calls be answered, where they wait for that."""

        def release() -> None:
            for _ in range(calls):
                self._permits.release()

        self._loop.call_soon_threadsafe(release)


@contextmanager
def endpoint(
    reply: Callable[[Seen], fake.Send] = solve, *, waits: bool = False
) -> Iterator[Endpoint]:
    """An endpoint for as long as the context lasts; `waits`: calls wait for `answer`."""
    loop = asyncio.new_event_loop()
    permits = asyncio.Semaphore(0)
    found = Endpoint(loop, permits)
    ready, stop = threading.Event(), asyncio.Event()

    def waiting(seen: Seen) -> fake.Send:
        async def send(*args: Any) -> Any:
            await permits.acquire()
            return await reply(seen)(*args)

        return send

    async def serve() -> None:
        async with FakeEndpoint(default=waiting if waits else reply) as server:
            found.url = server.url
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(_WAIT_S)
        yield found
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(_WAIT_S)
        loop.close()


@contextmanager
def gym(*args: str | Path, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """gym-cli as a process, whose runs and caches are in a folder; killed at the end."""
    environment = os.environ | {
        "GYMMESH_RUNTIME_DIR": str(folder / "runtime"),
        "GYMMESH_CACHE_DIR": str(folder / "cache"),
        "PYTHONUNBUFFERED": "1",
    }
    words = [sys.executable, "-m", "gymmesh_cli", *map(str, args)]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, env=environment, cwd=_ROOT
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def collected(*args: str | Path, folder: Path) -> None:
    """Collect to the end."""
    with gym(*args, folder=folder) as process:
        said, _ = process.communicate(timeout=_WAIT_S)
        assert process.returncode == 0, said


def address_of(viewer: subprocess.Popen[str]) -> str:
    """The address that gym-cli view prints."""
    assert viewer.stdout is not None
    for line in viewer.stdout:
        if found := re.search(r"http://\S+", line):
            return found[0]
    raise AssertionError("no address was printed")


def wait(found: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + _WAIT_S
    while not found():
        assert time.monotonic() < end, "it did not come to it"
        time.sleep(0.05)
