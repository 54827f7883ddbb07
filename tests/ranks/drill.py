"""A collector, several ranks as processes, and one of them killed, by a seed."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from gymmesh_client import open_run
from tests.ranks.judge import Life, life_of, shares, spread, violations
from tests.support import endpoint as fake
from tests.support.cli import Bench, ended, start
from tests.support.endpoint import FakeEndpoint, Seen
from tests.support.ports import free_port

Kill = Literal["any", "between", "collector"]
_KILLED: Final[Mapping[Kill, str]] = {
    "any": "a rank at a random moment",
    "between": "a rank between receiving and acknowledging a group",
    "collector": "the collector",
}
BOUND_S = 540.0


@dataclass(frozen=True)
class Plan:
    """What is done.

    Attributes:
        kill: "any": a rank, at a random moment. "between": a rank, between receiving a group and
            acknowledging it. "collector": the collector, which is then resumed.
        returns: whether a killed rank starts again, after the lease.
        keep: finished groups that the collector keeps (`--stream-groups`).
    """

    seed: int
    groups: int = 2000
    ranks: int = 4
    repeats: int = 2
    kill: Kill = "any"
    returns: bool = False
    keep: int = 16
    concurrency: int = 32
    lease_s: float = 3.0
    within: float = 0.10


@dataclass
class Result:
    """What came of it. `lives`: one for each process of a rank."""

    plan: Plan
    lives: list[Life] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    killed_after: int = 0
    redelivered: int = 0
    lost: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0

    def line(self) -> str:
        """For people."""
        tokens = ", ".join(
            f"{rank}: {count:,}" for rank, count in sorted(shares(self.lives).items())
        )
        plan = self.plan
        what = _KILLED[plan.kill] + (", then restarted" if plan.returns else "")
        began = [one.began for one in self.lives if one.began and one.rank in shares(self.lives)]
        late = max(began, default=0.0) - min(began, default=0.0)
        groups = "/".join(str(len(life.acked)) for life in self.lives)
        said = "; ".join(self.violations) or "ok"
        return (
            f"seed {plan.seed}, killed: {what}, after {self.killed_after} of {plan.groups} groups: "
            f"{said}\n"
            f"    {self.redelivered} groups sent again, {self.lost} groups lost; groups "
            f"acknowledged by each process: {groups}\n"
            f"    tokens of each rank that was never killed: {tokens} (difference "
            f"{spread(self.lives):.2%} of the mean); the ranks began {late:.1f} s apart\n"
            f"    time {self.wall_s:.0f} s, CPU {self.cpu_s:.0f} s"
        )


def answered(sizes: list[int]) -> Any:
    """The endpoint's answer: right, with as many tokens as the task is said to have."""

    def reply(seen: Seen) -> fake.Send:
        number = int(seen.body["messages"][-1]["content"].split()[2])
        return fake.text(str(number + 1), usage=(20, sizes[number]))

    return reply


def sizes_of(plan: Plan) -> list[int]:
    """Tokens of a rollout by task: most are short, a few a hundred times longer."""
    chance = random.Random(plan.seed)
    return [min(20_000, int(chance.lognormvariate(6.0, 1.2)) + 1) for _ in range(plan.groups)]


async def run(plan: Plan, folder: Path) -> Result:
    """Do it, and judge it."""
    began, cpu = time.monotonic(), _cpu_s()
    folder.mkdir(parents=True, exist_ok=True)
    result = Result(plan)
    async with FakeEndpoint(default=answered(sizes_of(plan))) as endpoint:
        bench = Bench(folder, endpoint.url, tasks=plan.groups)
        async with asyncio.timeout(BOUND_S):
            await _Drill(plan, folder, bench, result).run()
    result.wall_s, result.cpu_s = time.monotonic() - began, _cpu_s() - cpu
    return result


class _Drill:
    def __init__(self, plan: Plan, folder: Path, bench: Bench, result: Result) -> None:
        self._plan, self._folder, self._bench, self._result = plan, folder, bench, result
        self._chance = random.Random(f"{plan.kill} {plan.returns} {plan.seed}")
        self._address = f"127.0.0.1:{free_port()}"
        self._token = folder / "ranks.token"
        self._token.write_text(f"drill-{plan.seed}-token\n")
        self._processes: list[tuple[int, Process, Path]] = []
        self._killed: set[Path] = set()

    async def run(self) -> None:
        plan = self._plan
        # A rank that returns must find the run under way.
        latest = plan.groups // 4 if plan.returns else plan.groups * 9 // 10
        after = self._chance.randint(plan.groups // 20, latest)
        victim = self._chance.randrange(plan.ranks)
        self._result.killed_after = after
        between = max(1, after // plan.ranks) if plan.kill == "between" else 0
        collecting = await self._collect()
        async with self._stopping():
            for rank in range(plan.ranks):
                await self._start(rank, between if rank == victim else 0)
            if plan.kill == "any":
                await self._acked(after)
                await self._kill(victim)
            elif plan.kill == "between":
                await self._gone(victim)
            else:
                await self._acked(after)
                os.killpg(collecting.pid, signal.SIGKILL)
                await collecting.wait()
                collecting = await self._collect("--resume")
            if plan.returns:
                await asyncio.sleep(plan.lease_s + 0.5)
                await self._start(victim, 0)
            done = await ended(collecting, BOUND_S)
            for _, process, _ in self._processes:
                await process.wait()
        self._judge(done.code, done.out, done.err)

    def _judge(self, code: int, out: str, err: str) -> None:
        plan, result = self._plan, self._result
        for rank, _, log in self._processes:
            lines = log.read_text().splitlines() if log.exists() else []
            result.lives.append(life_of(rank, lines, killed=log in self._killed))
        tasks = [f"sum-{number}" for number in range(plan.groups)]
        had = {task for life in result.lives for task in life.acked}
        result.lost = len(set(tasks) - had - {life.open for life in result.lives if life.killed})
        result.violations = violations(result.lives, tasks, within=plan.within)
        if code:
            result.violations.append(
                f"the collector failed with the exit code {code}: {err[-2000:]}"
            )
        if "did not acknowledge" in err:
            result.violations.append(f"groups were not acknowledged: {err[-500:]}")
        with open_run(self._bench.output) as stored:
            rows = sum(1 for _ in stored.rows())
        if rows != plan.groups * plan.repeats:
            result.violations.append(
                f"the run has {rows} rows, expected {plan.groups * plan.repeats}"
            )
        result.redelivered = sum(
            len(life.got.keys() - life.acked.keys()) for life in result.lives if life.killed
        )

    async def _collect(self, *more: str) -> Process:
        plan = self._plan
        return await start(
            *self._bench.collect(
                "--num-repeats", str(plan.repeats), "--concurrency", str(plan.concurrency),
                "--stream", "--stream-groups", str(plan.keep), "--stream-lease",
                str(plan.lease_s), "--stream-listen", self._address,
                "--stream-token-file", self._token, "--quiet", *more,
            ),
            fresh=True,
        )  # fmt: skip

    async def _start(self, rank: int, die_at: int) -> None:
        log = self._folder / f"rank-{rank}.{len(self._processes)}.log"
        words = [self._address, self._token, rank, self._plan.ranks, log, die_at]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.ranks.rank", *map(str, words)
        )
        self._processes.append((rank, process, log))
        if die_at:
            self._killed.add(log)

    async def _acked(self, count: int) -> None:
        """Wait until ranks have acknowledged so many groups."""
        while True:
            logs = [log for _, _, log in self._processes if log.exists()]
            if sum(log.read_text().count("acked ") for log in logs) >= count:
                return
            await asyncio.sleep(0.02)

    async def _kill(self, rank: int) -> None:
        _, process, log = next(one for one in self._processes if one[0] == rank)
        if process.returncode is None:
            process.kill()
            self._killed.add(log)
        await process.wait()

    async def _gone(self, rank: int) -> None:
        _, process, _ = next(one for one in self._processes if one[0] == rank)
        await process.wait()

    @asynccontextmanager
    async def _stopping(self) -> AsyncIterator[None]:
        """End the ranks whatever happens."""
        try:
            yield
        finally:
            for _, process, _ in self._processes:
                if process.returncode is None:
                    process.kill()
                    await process.wait()


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
