"""`gym-cli serve` as processes that a test starts and ends one by one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.forked import fork

ROOT: Final = Path(__file__).parents[2]
START_S: Final = 240.0


@dataclass
class Served:
    """A service that is SERVING.

    said: what it said of itself (id, address, metrics_address). log: the file of what it logs.
    """

    process: Process
    said: dict[str, Any]
    log: Path

    async def goes_down(self, within_s: float) -> int:
        """Sends SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(within_s):
            return await self.process.wait()

    async def kill(self) -> None:
        """Leaves nothing of it behind; harmless when it has ended."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            await self.process.wait()


async def serve(
    *args: str | Path,
    log: Path,
    prefix: Sequence[str] = (),
    python: str = sys.executable,
    fresh: bool = False,
) -> Served:
    """Starts `gym-cli serve` with these arguments, and waits until it is SERVING.

    prefix: what the command line begins with. python: the interpreter. fresh: a process of its
    own from the start, for who measures it; else it is a fork of one that has imported gym-cli.
    """
    words = ["serve", *map(str, args), "--json"]
    process: Process | None = None
    with log.open("ab") as file:
        if not fresh and not prefix and python == sys.executable:
            process = await fork(words, ROOT, os.environ, file.fileno())
        if process is None:
            process = await asyncio.create_subprocess_exec(
                *prefix, python, "-m", "gymmesh_cli", *words,
                stdin=DEVNULL, stdout=PIPE, stderr=file, cwd=ROOT, start_new_session=True,
            )  # fmt: skip
    served = Served(process, {}, log)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_S):
            line = await process.stdout.readline()
        assert line, f"it ended: {log.read_text()}"
        served.said = json.loads(line)
    except BaseException:
        await served.kill()
        raise
    return served
