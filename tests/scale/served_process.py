"""A process that serves on a port and is asked by lines, as a bench sees it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from tests.scale.rollout_bench.contender import ROOT

T = TypeVar("T", bound="ServedProcess")


class ServedProcess:
    """An endpoint, while it runs: it says its port first, and answers each line with a line.

    Attributes:
        pid: its process.
        url: with the version, as endpoints are named.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid
        self.url = f"http://127.0.0.1:{self._hear()}/v1"

    def ask(self, line: str) -> str:
        """Its answer to a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._hear()

    def waiting(self) -> int:
        """How many calls wait for their answer."""
        return int(self.ask(""))

    def _hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def served(module: str, kind: type[T]) -> Iterator[T]:
    """Runs a module's process until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield kind(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=30)
