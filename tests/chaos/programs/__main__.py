"""The chaos runs of programs: python -m tests.chaos.programs (`make chaos-programs`).

docs/ideas/chaos.md explains them.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.chaos import report
from tests.chaos.programs.plan import ProgramWorld
from tests.chaos.programs.seed import ProgramResult, run_program_seed


def main() -> int:
    """Runs the seeds one after another; 1 when anything was wrong."""
    parser = argparse.ArgumentParser(
        prog="make chaos-programs",
        description="Kills programs that run as agents, and the services that they use.",
    )
    parser.add_argument(
        "--seeds", default="0-3", help="one seed (7) or a range of seeds (default: 0-3)"
    )
    parser.add_argument(
        "--rollouts", type=int, default=100, help="number of rollouts per seed (default: 100)"
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="keep the files of all seeds in FOLDER. Without this option, only the files of seeds "
        "with violations are kept, in a temporary folder",
    )
    asked = parser.parse_args()
    run = report.run_seeds(
        report.seeds_of(asked.seeds), asked.keep, partial(_run, asked.rollouts), _told
    )
    try:
        results = asyncio.run(report.until_stopped(run))
    except (asyncio.CancelledError, KeyboardInterrupt):
        print("interrupted: all processes of the test were ended")
        return 130
    print(table(results))
    return 1 if any(one.violations for one in results) else 0


async def _run(rollouts: int, seed: int, path: Path) -> ProgramResult:
    return await run_program_seed(ProgramWorld(seed, rollouts), path)


def _told(result: ProgramResult) -> Sequence[str]:
    return [line(result), f"reasons of retried attempts: {report.counts(result.retries) or 'none'}"]


def line(result: ProgramResult) -> str:
    """One seed in one line."""
    return (
        f"seed {result.world.seed:2}  {report.verdict_of(result)}  {result.world.rollouts} "
        f"rollouts: {result.completed} completed, {result.failed} failed; {result.attempts} "
        f"attempts; {result.wall_s:.0f} s  [killed: {report.counts(result.faults) or 'none'}]  "
        f"[failures: {report.counts(result.failures) or 'none'}]"
    )


def table(results: Sequence[ProgramResult]) -> str:
    """All seeds, and what was done to them."""
    columns = (
        "seed", "rollouts requested", "completed", "failed", "attempts", "kills", "seconds",
        "verdict",
    )  # fmt: skip
    faults = sum((one.faults for one in results), Counter[str]())
    missed = sum((one.missed for one in results), Counter[str]())
    retries = sum((one.retries for one in results), Counter[str]())
    below = (
        f"{sum(one.world.rollouts for one in results)} rollouts requested, "
        f"{sum(len(one.violations) for one in results)} violations",
        f"killed: {report.counts(faults) or 'none'}",
        f"not killed, because the process did not run: {report.counts(missed) or 'none'}",
        f"reasons of retried attempts: {report.counts(retries) or 'none'}",
    )
    return report.table(columns, map(_cells, results), below)


def _cells(one: ProgramResult) -> Sequence[object]:
    return (
        one.world.seed, one.world.rollouts, one.completed, one.failed, one.attempts,
        one.faults.total(), f"{one.wall_s:.0f}", report.verdict_of(one),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
