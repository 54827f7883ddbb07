"""Cases of one target, one after another and many at a time, and what was wrong in the end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.fuzz.judge import MIB, floors_of, problems_of_log, problems_of_memory
from tests.fuzz.mesh import Mesh
from tests.fuzz.pulse import Pulse
from tests.fuzz.targets.base import Target

_WORKERS: Final = 12
_CASE_S: Final = 200.0
_SAMPLES: Final = 60
_QUIET_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Plan:
    """Which cases: `only` one, the first so many, or as many as there are in some seconds."""

    seed: int = 0
    only: int | None = None
    cases: int | None = None
    seconds: float | None = None

    def numbers(self) -> Iterable[int]:
        """The cases' numbers, without regard to time."""
        if self.only is not None:
            return iter((self.only,))
        return iter(range(self.cases)) if self.cases is not None else itertools.count()


@dataclass
class Report:
    """What came of a target. `problems`: each once, with its first case and how often it came."""

    target: str
    plan: Plan
    cases: int = 0
    seconds: float = 0.0
    rollouts: int = 0
    problems: dict[str, tuple[str, int | None, int]] = field(default_factory=dict)
    memory: dict[str, list[int]] = field(default_factory=dict)
    seen: Mapping[str, int] = field(default_factory=dict)

    def add(self, problem: str, case: int | None = None) -> None:
        """Note a problem; those that differ in numbers alone are the same."""
        key = re.sub(r"[0-9a-f]{8,}|\d+|'[^']*'", "N", problem)[:400]
        known = self.problems.get(key)
        first = (problem, case, 0) if known is None else known
        self.problems[key] = (first[0], first[1], first[2] + 1)

    def lines(self) -> list[str]:
        """The report as text."""
        grown = ", ".join(
            f"{name} {'/'.join(str(floor // MIB) for floor in floors_of(samples, 4))}"
            for name, samples in self.memory.items()
        )
        count = len(self.problems)
        verdict = f"{count} PROBLEM{'S' * (count > 1)}" if count else "ok"
        lines = [
            f"{self.target}: {verdict}; seed {self.plan.seed}, {self.cases} cases in "
            f"{self.seconds:.0f} s, {self.rollouts} valid rollouts during the run",
            f"    lowest memory of each process in each quarter of the run, MiB: {grown}",
            "    answers: " + ", ".join(f"{key} {n}×" for key, n in sorted(self.seen.items())),
        ]
        for words, case, count in self.problems.values():
            again = f"python -m tests.fuzz {self.target} --seed {self.plan.seed} --case {case}"
            where = f"first in case {case}. To reproduce: {again}"
            where = where if case is not None else "after the last case"
            lines.append(f"    PROBLEM, {count}×, {where}\n        {words[:3000]}")
        return lines


async def fuzzed(target: Target, mesh: Mesh, plan: Plan) -> Report:
    """Runs the cases of an open target, and looks at all once they are over."""
    report = Report(target.name, plan)
    pulse = Pulse(mesh, target.name)
    started = time.monotonic()
    stop = None if plan.seconds is None else started + plan.seconds
    numbers = iter(plan.numbers())

    async def work() -> None:
        for number in numbers:
            if stop is not None and time.monotonic() >= stop:
                return
            try:
                async with asyncio.timeout(_CASE_S):
                    found = await target.run(plan.seed, number)
            except TimeoutError:
                found = [f"a case took longer than {_CASE_S:.0f} s"]
            report.cases += 1
            for problem in found:
                report.add(problem, number)
            if dead := mesh.dead():
                report.add(f"{dead}: {mesh.log_text()[-2000:]}", number)
                return

    beside = [
        asyncio.create_task(pulse.run()),
        asyncio.create_task(_watch(mesh, report, (plan.seconds or 30.0) / _SAMPLES)),
    ]
    try:
        async with asyncio.TaskGroup() as workers:
            for _ in range(_WORKERS):
                workers.create_task(work())
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
    report.seconds, report.rollouts = time.monotonic() - started, pulse.rollouts
    report.seen = getattr(target, "seen", {})
    await asyncio.sleep(_QUIET_S)  # what was given up is cleared away
    _sample(mesh, report)
    await _look(target, mesh, report, pulse)
    await pulse.close()
    return report


async def afterwards(mesh: Mesh) -> list[str]:
    """What is wrong with a mesh once all of its targets are done: rollouts get their rewards, and
    the logs say nothing that they should not.
    """
    rollouts = await mesh.serves(mesh.folder / "afterwards")
    return [*rollouts, *problems_of_log(mesh.log_text())]


async def _look(target: Target, mesh: Mesh, report: Report, pulse: Pulse) -> None:
    """What is wrong once all cases are over."""
    found = [*pulse.problems, *mesh.dead()]
    if not found:
        with contextlib.suppress(OSError):
            found += await target.after()
        found += await pulse.once(-1)
    if report.plan.seconds is not None:
        for name, samples in report.memory.items():
            found += problems_of_memory(name, samples)
    for problem in found:
        report.add(problem)


async def _watch(mesh: Mesh, report: Report, every_s: float) -> None:
    while True:
        _sample(mesh, report)
        await asyncio.sleep(every_s)


def _sample(mesh: Mesh, report: Report) -> None:
    for name, size in mesh.memory().items():
        report.memory.setdefault(name, []).append(size)
