"""The scripted model server as the bench sees it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.scale.rollout_bench.contender import ROOT


class ScriptedEndpoint:
    """The model server, while it runs. `url`: with the version, as endpoints are named."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.url = f"http://127.0.0.1:{self._hear()}/v1"

    def answer_after(self, seconds: float) -> None:
        """Later calls take so long, and those that are held are answered."""
        self._ask(str(seconds))

    def hold(self) -> None:
        """Later calls are answered when `answer_after` says so."""
        self._ask("hold")

    def waiting(self) -> int:
        """How many calls wait for their answer."""
        return int(self._ask(""))

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._hear()

    def _hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def endpoint() -> Iterator[ScriptedEndpoint]:
    """The model server in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.scale.gateway_bench.endpoint"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield ScriptedEndpoint(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=30)
