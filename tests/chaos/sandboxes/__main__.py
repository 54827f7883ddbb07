"""The chaos runs of sandboxes: python -m tests.chaos.sandboxes (`make chaos-sandboxes`).

docs/ideas/chaos.md explains them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.chaos import report
from tests.chaos.sandboxes.plan import sandbox_world
from tests.chaos.sandboxes.seed import SandboxResult, run_sandbox_seed
from tests.chaos.sandboxes.world import PODMAN


def main() -> int:
    """Runs the seeds one after another; 1 when anything was wrong."""
    parser = argparse.ArgumentParser(
        prog="make chaos-sandboxes",
        description="Kills the sandbox service, its clients and its processes while sandboxes run.",
    )
    parser.add_argument(
        "--seeds", default="0-7", help="one seed (7) or a range of seeds (default: 0-7)"
    )
    parser.add_argument(
        "--sandboxes",
        type=int,
        default=250,
        help="smallest number of sandboxes per seed (default: 250)",
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
        report.seeds_of(asked.seeds), asked.keep, partial(_run, asked.sandboxes), _told
    )
    try:
        results = asyncio.run(report.until_stopped(run))
    except (asyncio.CancelledError, KeyboardInterrupt):
        print("interrupted: all processes of the test were ended")
        return 130
    print(table(results))
    return 1 if any(one.violations for one in results) else 0


def backend_of(seed: int) -> str:
    """Each fourth seed is Podman's, where that is set up."""
    return "podman" if PODMAN in os.environ and seed % 4 == 3 else "bubblewrap"


async def _run(sandboxes: int, seed: int, path: Path) -> SandboxResult:
    return await run_sandbox_seed(sandbox_world(seed, sandboxes, backend_of(seed)), path)


def _told(result: SandboxResult) -> Sequence[str]:
    return [line(result)]


def line(result: SandboxResult) -> str:
    """One seed in one line."""
    verdict = f"{len(result.violations)} VIOLATIONS" if result.violations else "ok"
    return (
        f"seed {result.world.seed:2}  {result.world.backend}  {verdict}  {result.sandboxes} "
        f"sandboxes, {result.whole} of {result.lives} uses without a failed call, "
        f"{result.wall_s:.0f} s  [faults: {report.counts(result.faults) or 'none'}]  "
        f"[failed calls: {report.counts(result.failures) or 'none'}]"
    )


def table(results: Sequence[SandboxResult]) -> str:
    """All seeds, and what was done to them."""
    columns = (
        "seed", "backend", "sandboxes", "uses of sandboxes", "uses without a failed call",
        "kills and cut connections", "seconds from the owners' end to the sandboxes' end",
        "seconds", "verdict",
    )  # fmt: skip
    faults = sum((one.faults for one in results), Counter[str]())
    missed = sum((one.missed for one in results), Counter[str]())
    below = (
        f"{sum(one.sandboxes for one in results)} sandboxes, "
        f"{sum(len(one.violations) for one in results)} violations",
        f"faults applied: {report.counts(faults) or 'none'}",
        f"faults not applied: {report.counts(missed) or 'none'}",
    )
    return report.table(columns, map(_cells, results), below)


def _cells(one: SandboxResult) -> Sequence[object]:
    return (
        one.world.seed, one.world.backend, one.sandboxes, one.lives, one.whole,
        one.faults.total(), f"{one.expired_s:.0f}", f"{one.wall_s:.0f}", report.verdict_of(one),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
