"""One seed: programs run while they, their gateway, sandboxes, model and environment are killed.

Then nothing of them may be left, and a further run must be as if nothing had been killed.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gymmesh_runtime.timers import cancel_and_wait
from tests.chaos.processes import ROOT
from tests.chaos.programs.judge import judge_rows
from tests.chaos.programs.kills import ProgramKills
from tests.chaos.programs.lines import WantedLines
from tests.chaos.programs.plan import PROGRAM, ProgramFault, ProgramWorld, program_faults
from tests.chaos.programs.world import CHECKS_TTL_S, ProgramsUp, programs_up
from tests.chaos.seed import quiet

_TIMEOUT_S: Final = 90
#: Beyond the time of the leases, on a busy machine.
_BUSY_S: Final = 60.0
_NEXT: Final = 8
_DONE: Final = (0, 3)
_KEY: Final = re.compile(rb"sk-gymmesh-[\w-]{16,}")


@dataclass
class ProgramResult:
    """What came of a seed.

    Attributes:
        completed, failed: rollouts.
        attempts: of all rollouts together, the last ones' numbers.
        retries: reasons of attempts that another one followed, and how often.
        failures: reasons of rollouts that failed, and how often.
        faults, missed: what was done, and what could not be done.
        violations: what was wrong.
    """

    world: ProgramWorld
    completed: int = 0
    failed: int = 0
    attempts: int = 0
    retries: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    wall_s: float = 0.0
    violations: list[str] = field(default_factory=list)


async def run_program_seed(
    world: ProgramWorld, path: Path, faults: Sequence[ProgramFault] | None = None
) -> ProgramResult:
    """Carries a seed out in a folder; `faults`: in place of the seed's own."""
    begun = time.monotonic()
    path.mkdir(parents=True, exist_ok=True)
    result = ProgramResult(world)
    wanted = [WantedLines(number) for number in range(world.rollouts)]
    async with programs_up(world, path) as up:
        kills = ProgramKills(up, world)
        schedule: Iterable[ProgramFault] = program_faults(world) if faults is None else faults
        killing = asyncio.create_task(kills.follow(schedule))
        try:
            rows, failures, said = await _collected(up, world, path, "killed", wanted)
        finally:
            await cancel_and_wait(killing)
        if not killing.cancelled() and (error := killing.exception()) is not None:
            raise error
        result.violations += said
        result.violations += judge_rows(wanted, rows, failures, kills.done[PROGRAM])
        result.completed, result.failed = len(rows), len(failures)
        result.attempts = sum(row["attempt"] for row in (*rows, *failures))
        result.retries = _retries(path / "killed.summary.json")
        result.failures = Counter(row["failure"]["status"]["reason"] for row in failures)
        result.faults, result.missed = kills.done, kills.missed
        await _all_up(up)
        result.violations += await _left(up)
        further = [WantedLines(world.rollouts + number) for number in range(_NEXT)]
        rows, failures, said = await _collected(up, world, path, "next", further, attempts=1)
        result.violations += said
        result.violations += [
            f"run after the kills: {one}" for one in judge_rows(further, rows, failures, 0)
        ]
        result.violations += [
            f"run after the kills: {row['rollout_id']} failed: {row['failure']}" for row in failures
        ]
        result.violations += await _left(up)
    result.violations += _keys_in_files(path)
    result.wall_s = time.monotonic() - begun
    return result


async def _collected(
    up: ProgramsUp,
    world: ProgramWorld,
    path: Path,
    name: str,
    wanted: Sequence[WantedLines],
    attempts: int = 0,
) -> tuple[list[Any], list[Any], list[str]]:
    """Rows, failures, and what was wrong with the collector."""
    tasks, output = path / f"{name}.tasks.jsonl", path / f"{name}.jsonl"
    tasks.write_text("".join(json.dumps(one.row(up.mark)) + "\n" for one in wanted))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.chaos.launched", "gym-cli", "collect",
        "--config", str(up.config), "--input", str(tasks), "--output", str(output),
        "--agent", up.agent, "--concurrency", str(world.concurrency),
        "--timeout", str(_TIMEOUT_S), "--max-attempts", str(attempts or world.attempts),
        "--quiet", "--json",
        stdin=DEVNULL, stdout=PIPE, stderr=PIPE, cwd=ROOT,
    )  # fmt: skip
    stderr = b""
    try:
        async with asyncio.timeout(world.seconds):
            _, stderr = await process.communicate()
    except TimeoutError:
        return [], [], [f"run {name!r}: not finished after {world.seconds:.0f} s"]
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    words = stderr.decode(errors="replace").splitlines()
    wrong = []
    if process.returncode not in _DONE:
        wrong = [
            f"run {name!r}: the collector failed with the exit code {process.returncode}: "
            f"{' | '.join(words[-3:])}"
        ]
    return _lines(output), _lines(output.with_suffix(".failures.jsonl")), wrong


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _retries(summary: Path) -> Counter[str]:
    return Counter(json.loads(summary.read_text())["retries"] if summary.exists() else {})


async def _all_up(up: ProgramsUp) -> None:
    """Returns once what was killed last is up again. Raises TimeoutError."""
    async with asyncio.timeout(_BUSY_S):
        for worker in up.services.values():
            await worker.up.wait()


async def _left(up: ProgramsUp) -> list[str]:
    """What is left of rollouts and sandboxes when it should long be gone."""
    gauges = await quiet({name: one.metrics_address for name, one in up.services.items()})
    left = await up.machine.until_nothing(lambda: up.pid, CHECKS_TTL_S + _BUSY_S)
    return [
        *(f"left over after the run: {one}" for one in left),
        *(
            f"{name} is {value} after the run, expected 0"
            for name, value in gauges.items()
            if value
        ),
    ]


def _keys_in_files(path: Path) -> list[str]:
    found = []
    for file in (*path.glob("*.log"), *path.glob("*.jsonl"), *path.glob("*.journal")):
        if _KEY.search(file.read_bytes()):
            found.append(f"{file.name} contains a rollout's key")
    return found
