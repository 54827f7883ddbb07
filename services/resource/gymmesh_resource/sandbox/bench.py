"""How long a trivial program takes in the sandbox, several at a time.

python -m gymmesh_resource.sandbox.bench
"""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from gymmesh_resource.sandbox.bubblewrap import BubblewrapSandbox
from gymmesh_resource.sandbox.languages import program_in
from gymmesh_resource.sandbox.program import Limits, Sandbox


@dataclass(frozen=True, slots=True)
class Measurement:
    """Milliseconds from request to result, and CPU of the programs with their launchers.

    `handed_over`: how many were started ahead.
    """

    executions: int
    in_flight: int
    median_ms: float
    p99_ms: float
    cpu_ms: float
    handed_over: int

    def __str__(self) -> str:
        line = (
            f"{self.executions} executions, {self.in_flight} in flight: median"
            f" {self.median_ms:.1f} ms, p99 {self.p99_ms:.1f} ms, {self.cpu_ms:.1f} ms CPU each"
        )
        return line + (f", {self.handed_over} started ahead" if self.handed_over else "")


async def measure(
    *,
    executions: int = 200,
    in_flight: int = 4,
    language: str = "python",
    warm: int = 0,
    pause_s: float = 0.0,
) -> Measurement:
    """The figures of this machine. Raises `SandboxUnavailable`.

    `warm`: programs started ahead. `pause_s`: seconds between a result and the next request.
    """
    source = "print(1 + 1)" if language == "python" else "echo $((1 + 1))"
    program = program_in(language, source)
    left = list(range(executions))
    durations: list[float] = []

    async def worker() -> None:
        while left:
            left.pop()
            started = time.perf_counter()
            result = await sandbox.run(program, Limits())
            if result.stdout != b"2\n":
                raise RuntimeError(f"a trivial program failed: {result}")
            durations.append((time.perf_counter() - started) * 1000)
            if pause_s:
                await asyncio.sleep(pause_s)

    sandbox = BubblewrapSandbox(concurrency=in_flight, warm=warm)
    before = _children_cpu()
    await sandbox.open()
    before += _cpu_of(sandbox.spawner_pid)  # of its start, and of the program that open runs
    try:
        await asyncio.gather(*(worker() for _ in range(in_flight)))
    finally:
        await sandbox.close()
    return Measurement(
        executions=executions,
        in_flight=in_flight,
        median_ms=statistics.median(durations),
        p99_ms=_p99(durations),
        # With that of programs which still waited at the end.
        cpu_ms=(_children_cpu() - before) * 1000 / executions,
        handed_over=sandbox.handed_over,
    )


async def measure_neighbour() -> tuple[float, float]:
    """The p99 in ms of short programs, alone and beside a fork bomb that is held all the while.

    Each is a shell program started 20 ms after the last ended. Raises `SandboxUnavailable`.
    """
    sandbox = BubblewrapSandbox(concurrency=4)
    await sandbox.open()
    try:
        alone = await _short_programs(sandbox)
        bombing = asyncio.create_task(_bomb_for_ever(sandbox))
        try:
            beside = await _short_programs(sandbox)
        finally:
            bombing.cancel()
            await asyncio.wait((bombing,), timeout=10)
    finally:
        await sandbox.close()
    return alone, beside


async def _short_programs(sandbox: Sandbox) -> float:
    durations = []
    for _ in range(200):
        await asyncio.sleep(0.02)
        result = await sandbox.run(program_in("shell", "echo 1"), Limits())
        durations.append(result.duration_s * 1000)
    return _p99(durations)


def _p99(durations: list[float]) -> float:
    return sorted(durations)[min(len(durations) - 1, int(len(durations) * 0.99))]


async def _bomb_for_ever(sandbox: Sandbox) -> None:
    source = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    while True:
        await sandbox.run(program_in("python", source), Limits(wall_s=2.0))


def _cpu_of(pid: int) -> float:
    """Seconds that a process and its children that have ended used; proc_pid_stat(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _children_cpu() -> float:
    """Seconds that all ended children of this process used: a spawner once it is closed."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    for name in ("python", "shell"):
        for ahead in (0, 4):
            figures = asyncio.run(measure(language=name, warm=ahead))
            sys.stdout.write(f"{name}, {ahead} warm: {figures}\n")
    alone, beside = asyncio.run(measure_neighbour())
    sys.stdout.write(f"p99 alone {alone:.1f} ms, beside a fork bomb {beside:.1f} ms\n")
