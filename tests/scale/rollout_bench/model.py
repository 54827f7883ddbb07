"""The fake endpoint as the bench sees it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.scale.rollout_bench.contender import ROOT


class Endpoint:
    """The fake endpoint, while it runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid
        self.url = f"http://127.0.0.1:{self._hear()}/v1"

    def answer_within(self, shortest_s: float, longest_s: float) -> None:
        """Answers after a uniform random time from then on."""
        self._ask(f"{shortest_s} {longest_s}")

    def in_flight(self) -> int:
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
def endpoint() -> Iterator[Endpoint]:
    """The fake endpoint in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.scale.rollout_bench.endpoint"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Endpoint(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=30)
