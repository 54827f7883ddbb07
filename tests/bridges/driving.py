"""Others' clients, driven from here: scripts of their interpreters that play given answers."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.shelf import Play, Shelved

_ANSWER_S = 900.0


class Driver:
    """One client's process: a JSON line in for each play, one out for what came of it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    async def play(self, shelf: Shelved, play: Play, client: str) -> Any:
        """The reward, or what else the client reports, of a play.

        Raises AssertionError for the client's errors.
        """
        question = {"url": shelf.url, "name": shelf.name, "client": client, **play.as_json()}
        async with asyncio.timeout(_ANSWER_S):
            line = await asyncio.to_thread(self._ask, json.dumps(question).encode() + b"\n")
        answer: dict[str, Any] = json.loads(line or b'{"error": "the client ended"}')
        assert "error" not in answer, answer["error"]
        return answer["reward"]

    def _ask(self, line: bytes) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()
        return self._process.stdout.readline()


@contextmanager
def driving(python: Path, script: Path) -> Iterator[Driver]:
    """Run a client's script; its standard error is this process's own."""
    pipe = subprocess.PIPE
    with subprocess.Popen([python, script], stdin=pipe, stdout=pipe) as process:
        try:
            yield Driver(process)
        finally:
            process.kill()


@contextmanager
def driving_two(python: Path, script: Path) -> Iterator[tuple[Driver, Driver]]:
    """Run a client's script in two processes, which play at the same time."""
    with driving(python, script) as one, driving(python, script) as other:
        yield one, other


async def played_at_once(
    clients: tuple[Driver, Driver], shelf: Shelved, play: Play, kinds: tuple[str, str]
) -> dict[str, Any]:
    """What each of two kinds of client reports of a play, in sessions that are open together."""
    plays = (client.play(shelf, play, kind) for client, kind in zip(clients, kinds, strict=True))
    return dict(zip(kinds, await asyncio.gather(*plays), strict=True))
