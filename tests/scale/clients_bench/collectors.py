"""The collectors: gym-cli, and the `collect` program of each client; and one run of one.

All are started as a user starts them, each run a process of its own, with the same task file and
the same agent. What a run used is sampled while it goes on, so that the figures can leave out the
start of its process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import orjson

from tests.clients.programs import CLIENTS, COMMANDS
from tests.scale.rollout_bench.contender import ROOT
from tests.scale.rollout_bench.usage import cpu_clock_s

OURS: Final = "gym-cli"
LANGUAGES: Final = ("go", "typescript", "java", "rust")
TITLES: Final = {"go": "Go", "typescript": "TypeScript", "java": "Java", "rust": "Rust"}
PROGRAMS: Final[Mapping[str, Sequence[str]]] = {
    **COMMANDS,
    "rust": [str(CLIENTS / "rust/target/release/examples/collect")],
}
_TOOLCHAINS: Final = {
    "go": ("go", "env", "GOVERSION"),
    "typescript": ("node", "--version"),
    "java": ("java", "--version"),
    "rust": ("rustc", "--version"),
}
_TICK_S: Final = 0.01
_BOUND_S: Final = 300.0  # of a run that takes some seconds


class CollectorFailed(Exception):
    """It is not there, failed, or did not do all that was asked for; the message says which."""


@dataclass(frozen=True, slots=True)
class Sample:
    """How far a run is: seconds of the clock, rows written, CPU seconds of it and of the mesh."""

    at_s: float
    rows: int
    cpu_s: float
    mesh_s: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What a rollout cost once the collector was warm: CPU milliseconds, and rollouts a second.

    ``whole_ms``: CPU milliseconds of the collector's whole process, its start and end included,
    divided by all its rollouts.
    """

    cpu_ms: float
    mesh_ms: float
    per_s: float
    whole_ms: float


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be collected: ``rollouts`` repeats of the one task in a file."""

    agent: str
    tasks: Path
    folder: Path
    rollouts: int
    in_flight: int


def command(name: str, order: Order) -> list[str]:
    """The command line of a collector. Raises CollectorFailed where its program is not there."""
    same = ["--agent", order.agent, "--input", str(order.tasks)]
    same += ["--output", str(order.folder / "rows.jsonl")]
    same += ["--num-repeats", str(order.rollouts), "--concurrency", str(order.in_flight)]
    if name == OURS:
        return [sys.executable, "-m", "gymmesh_cli", "collect", *same, "--quiet", "--json"]
    program = PROGRAMS[name]
    if not Path(program[-1]).exists():
        raise CollectorFailed(f"{program[-1]} is not there: `make bench-clients` builds it")
    return [*program, *same, "--failures", str(order.folder / "rows.failures.jsonl")]


def toolchain(name: str) -> str:
    """What a language's program was compiled with, or runs on."""
    said = subprocess.run(_TOOLCHAINS[name], capture_output=True, text=True, check=True).stdout
    return " ".join(said.splitlines()[0].split()[:2])


def collect(
    name: str, order: Order, mesh: Sequence[int], look: Callable[[], None] | None = None
) -> Cost:
    """Runs one collector to its end; every rollout must have completed.

    ``mesh`` are the ids of the mesh's processes; ``look`` is called some times meanwhile. Raises
    CollectorFailed.
    """
    order.folder.mkdir()
    with (order.folder / "out").open("w+b") as out, (order.folder / "err").open("w+b") as err:
        process = subprocess.Popen(command(name, order), cwd=ROOT, stdout=out, stderr=err)
        try:
            samples = _Samples(process.pid, mesh, order.folder / "rows.jsonl")
            samples.follow(look)
        except BaseException:
            process.kill()
            process.wait()
            raise
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise CollectorFailed(f"{name} ended with {process.returncode}: {_tail(err)}")
        out.seek(0)
        summary = orjson.loads(out.read())
    check(name, order, summary)
    return cost(samples.taken, order.rollouts, usage.ru_utime + usage.ru_stime)


def cost(samples: Sequence[Sample], rollouts: int, whole_s: float) -> Cost:
    """What a rollout cost after the first quarter, in which the process starts and warms up."""
    warm = next(one for one in samples if one.rows >= rollouts // 4)
    done = next(one for one in samples if one.rows >= rollouts)
    count = done.rows - warm.rows
    if count < rollouts // 2:
        raise CollectorFailed(
            f"of {rollouts} rollouts only {count} came after the first look at the rows: "
            "there are too few to measure anything; use more"
        )
    return Cost(
        cpu_ms=(done.cpu_s - warm.cpu_s) / count * 1e3,
        mesh_ms=(done.mesh_s - warm.mesh_s) / count * 1e3,
        per_s=count / (done.at_s - warm.at_s),
        whole_ms=whole_s / rollouts * 1e3,
    )


def check(name: str, order: Order, summary: Mapping[str, Any]) -> None:
    """Whether all were collected: each repeat once, rewarded, and none failed.

    Raises CollectorFailed.
    """
    with (order.folder / "rows.jsonl").open("rb") as file:
        rows = [orjson.loads(line) for line in file]
    failures = order.folder / "rows.failures.jsonl"
    failed = len(failures.read_bytes().splitlines()) if failures.exists() else 0
    found = {
        "rows": len(rows),
        "different repeats": len({row["repeat_index"] for row in rows}),
        "rows with reward 1": sum(row["reward"] == 1.0 for row in rows),
        "completed by its own account": summary["completed"],
    }
    wrong = [f"{count} {what}" for what, count in found.items() if count != order.rollouts]
    if failed or summary["failed"]:
        wrong.append(f"{max(failed, summary['failed'])} failed")
    if wrong:
        raise CollectorFailed(f"{name}, {order.rollouts} rollouts: {', '.join(wrong)}")


@dataclass(slots=True)
class _Samples:
    """Samples of a run."""

    pid: int
    mesh: Sequence[int]
    path: Path
    taken: list[Sample] = field(default_factory=list)
    _rows: int = 0
    _read: int = 0

    def follow(self, look: Callable[[], None] | None) -> None:
        """Takes them until the process has ended, which is left to be waited for."""
        end = time.monotonic() + _BOUND_S
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while True:
            over = os.waitid(os.P_PID, self.pid, options) is not None
            self._take()
            if over:
                return
            if time.monotonic() > end:
                raise CollectorFailed(f"not over after {_BOUND_S:.0f} s, with {self._rows} rows")
            if look is not None:
                look()
            time.sleep(_TICK_S)

    def _take(self) -> None:
        self._count()
        mesh_s = sum(map(cpu_clock_s, self.mesh))
        self.taken.append(Sample(time.monotonic(), self._rows, cpu_clock_s(self.pid), mesh_s))

    def _count(self) -> None:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._read)
            news = file.read()
        self._read += len(news)
        self._rows += news.count(b"\n")


def _tail(err: IO[bytes]) -> str:
    err.seek(0)
    return " | ".join(err.read().decode(errors="replace").strip().splitlines()[-3:])[:600]
