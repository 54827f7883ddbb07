"""The chaos runs: python -m tests.chaos, which `make chaos` calls. docs/ideas/chaos.md explains
it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.chaos import report
from tests.chaos.plan import schedule_of, world_of
from tests.chaos.seed import Result, run_seed


def main() -> int:
    """Runs the seeds one after another; 1 when the judge found anything."""
    parser = argparse.ArgumentParser(
        prog="make chaos", description="Breaks runs on purpose, and checks the files they leave."
    )
    parser.add_argument(
        "--seeds", default="0-19", help="one seed (7) or a range of seeds (default: 0-19)"
    )
    parser.add_argument(
        "--rollouts",
        type=int,
        default=500,
        help="smallest number of rollouts per seed (default: 500)",
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="keep the files of all seeds in FOLDER. Without this option, only the files of seeds "
        "with violations are kept, in a temporary folder",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the results to FILE as JSON"
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
    if asked.json:
        asked.json.write_text(json.dumps([_as_json(one) for one in results], indent=1) + "\n")
    return 1 if any(one.violations for one in results) else 0


async def _run(rollouts: int, seed: int, path: Path) -> Result:
    world = world_of(seed, rollouts)
    return await run_seed(world, schedule_of(world), path)


def _told(result: Result) -> Sequence[str]:
    return [line(result), *(f"note: {note}" for note in result.notes)]


def line(result: Result) -> str:
    """One seed in one line."""
    world = result.world
    names = Counter(f"{one['kind']}:{one['target']}" for one in result.faults)
    hit = ", ".join(f"{name}×{count}" if count > 1 else name for name, count in names.items())
    verdict = f"{len(result.violations)} VIOLATIONS" if result.violations else "ok"
    missed = f"; faults not applied: {', '.join(result.missed)}" if result.missed else ""
    return (
        f"seed {world.seed:2}  {world.layout}/{world.api}  {verdict}  "
        f"{world.rollouts} rollouts: {result.verdict['completed']} completed, "
        f"{result.verdict.get('failed', 0)} failed; {len(result.sessions)} collectors; "
        f"{result.wall_s:.0f} s  [faults: {hit}{missed}]"
    )


def table(results: Sequence[Result]) -> str:
    """All seeds, and what was done to them."""
    columns = (
        "seed", "layout", "API", "rollouts requested", "completed", "failed",
        "collector processes", "faults", "seconds", "verdict",
    )  # fmt: skip
    done = Counter(fault["kind"] for one in results for fault in one.faults)
    asked = sum(one.world.rollouts for one in results)
    below = (
        f"{asked} rollouts requested, {sum(len(one.violations) for one in results)} violations",
        f"faults applied: {report.counts(done) or 'none'}",
        f"faults not applied: {sum(len(one.missed) for one in results)}",
    )
    return report.table(columns, map(_cells, results), below)


def _cells(one: Result) -> Sequence[object]:
    verdict, world = one.verdict, one.world
    return (
        world.seed, world.layout, world.api, world.rollouts, verdict["completed"],
        verdict.get("failed", 0), len(one.sessions), len(one.faults), f"{one.wall_s:.0f}",
        report.verdict_of(one),
    )  # fmt: skip


def _as_json(result: Result) -> dict[str, object]:
    return {
        "seed": result.world.seed,
        "rollouts": result.world.rollouts,
        "verdict": result.verdict,
        "faults": result.faults,
        "missed": result.missed,
        "wall_s": round(result.wall_s, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
