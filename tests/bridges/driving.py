"""Others' clients, driven from here: scripts of their interpreters that play what they are told."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.shelf import Play

_ANSWER_S = 300.0


class Driver:
    """One client's process: a JSON line in for each play, one out for what came of it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def play(self, play: Play, **more: Any) -> Any:
        """The reward, or what else the client reports. Raises AssertionError for its errors."""
        return (await self.ask({**play.as_json(), **more}))["reward"]

    async def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """The client's answer. Raises AssertionError for an error of the client's."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        async with asyncio.timeout(_ANSWER_S):
            line = await self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line or b'{"error": "the client ended"}')
        assert "error" not in answer, answer["error"]
        return answer


@asynccontextmanager
async def driving(python: Path, script: Path, *arguments: str, **env: str) -> AsyncIterator[Driver]:
    """Run a client's script; its standard error is this process's own."""
    process = await asyncio.create_subprocess_exec(
        python, script, *arguments, stdin=PIPE, stdout=PIPE, env={**os.environ, **env},
        limit=1 << 24,
    )  # fmt: skip
    assert process.stdin is not None
    try:
        yield Driver(process)
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(30):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
