"""A contender: a process that runs rollouts when asked, and what it used for them."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from tests.scale.rollout_bench import counters, usage

ROOT: Final = Path(__file__).parents[3]


class ContenderFailed(Exception):
    """It ended, or said that it can't run; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a rollout cost: CPU milliseconds over all counted processes, and rollouts a second."""

    cpu_ms: float
    per_s: float


class Contender:
    """One that runs. Started by `start`; `close` ends it.

    `ready_s`: seconds from the command to ready to run. `idle_mb`: PSS of its processes then.
    """

    def __init__(self, name: str, process: subprocess.Popen[str], log: IO[bytes]) -> None:
        self.name = name
        self._process = process
        self._log = log
        self.ready_s = 0.0
        self.idle_mb = 0.0
        self.version = ""
        self._pids: list[int] = []

    @classmethod
    def start(cls, name: str, command: Sequence[str], stack: ExitStack) -> Contender:
        """Starts one, which `stack` ends, and waits until it is ready; raises ContenderFailed."""
        log = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
        started = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        self = cls(name, process, log)
        stack.callback(self.close)
        ready = self._hear()["ready"]
        self.ready_s = time.perf_counter() - started
        self.version = ready.get("version", "")
        self._pids = usage.family(process.pid)
        if ready.get("apart"):  # it drives the work, and is no part of it
            self._pids.remove(process.pid)
        self.idle_mb = usage.pss_mb(self._pids)
        return self

    def run(self, rollouts: int, in_flight: int) -> Cost:
        """Runs so many rollouts, and says what each cost; raises ContenderFailed."""
        before = self.cpu_s
        self.ask(rollouts, in_flight)
        wall_s = self.wait()["wall_s"]
        return Cost((self.cpu_s - before) / rollouts * 1e3, rollouts / wall_s)

    def count(self, rollouts: int, in_flight: int) -> counters.Counted:
        """Runs so many rollouts, and says what the processor counted of each."""
        with counters.counting(self._pids) as counted:
            self.ask(rollouts, in_flight)
            self.wait()
        cycles, instructions = counted.cycles // rollouts, counted.instructions // rollouts
        return counters.Counted(cycles, instructions)

    def ask(self, rollouts: int, in_flight: int) -> None:
        """Has it run so many rollouts; `wait` is to follow."""
        self._say({"rollouts": rollouts, "in_flight": in_flight})

    def wait(self) -> dict[str, float]:
        """Waits until they are done: what talk.py says, `wall_s` and others."""
        heard: dict[str, float] = self._hear()
        return heard

    def order(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Sends a message, and waits for the answer; raises ContenderFailed."""
        self._say(message)
        heard: dict[str, Any] = self._hear()
        return heard

    @property
    def cpu_s(self) -> float:
        """CPU seconds of its processes so far."""
        return usage.cpu_s(self._pids)

    @property
    def mb(self) -> float:
        """PSS of its processes now."""
        return usage.pss_mb(self._pids)

    @property
    def family_mb(self) -> float:
        """PSS of its processes now, with those that it has started since it was ready."""
        return usage.pss_mb(usage.family(self._process.pid))

    @property
    def family_cpu_s(self) -> float:
        """CPU seconds of its processes so far, with those that it has started since, as long as
        they run or their parents have waited for them.
        """
        return usage.cpu_s(usage.family(self._process.pid))

    @property
    def processes(self) -> int:
        """How many processes are counted."""
        return len(self._pids)

    def close(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _say(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(message)}\n")
        self._process.stdin.flush()

    def _hear(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(30)
            self._log.seek(0)
            tail = self._log.read().decode(errors="replace").strip().splitlines()[-1:]
            raise ContenderFailed(f"{self.name} ended: {' '.join(tail)[:300]}")
        return json.loads(line)
