"""The chaos runs of programs: python -m tests.chaos.programs (`make chaos-programs`).

docs/chaos.md explains them.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.programs.plan import ProgramWorld
from tests.chaos.programs.seed import ProgramResult, run_program_seed


def main() -> int:
    """Runs the seeds one after another; 1 when anything was wrong."""
    parser = argparse.ArgumentParser(prog="make chaos-programs")
    parser.add_argument("--seeds", default="0-3", help="such as 7, or 0-3 (the default)")
    parser.add_argument("--rollouts", type=int, default=100, help="per seed")
    parser.add_argument("--keep", type=Path, help="keep the files of all seeds in this folder")
    asked = parser.parse_args()
    first, _, last = asked.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    try:
        results = asyncio.run(_until_stopped(_run(seeds, asked.rollouts, asked.keep)))
    except (asyncio.CancelledError, KeyboardInterrupt):
        print("interrupted; nothing is left running")
        return 130
    print(table(results))
    return 1 if any(one.violations for one in results) else 0


async def _until_stopped(
    running: Coroutine[Any, Any, list[ProgramResult]],
) -> list[ProgramResult]:
    """Ends early on SIGTERM, too, with all that was started taken away."""
    task = asyncio.ensure_future(running)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


async def _run(seeds: Sequence[int], rollouts: int, keep: Path | None) -> list[ProgramResult]:
    results = []
    base = keep or Path(tempfile.mkdtemp(prefix="gymmesh-chaos-"))
    for seed in seeds:
        path = base / f"seed-{seed:02d}"
        shutil.rmtree(path, ignore_errors=True)
        result = await run_program_seed(ProgramWorld(seed, rollouts), path)
        results.append(result)
        print(line(result), flush=True)
        for violation in result.violations:
            print(f"         VIOLATION {violation}", flush=True)
        if result.violations:
            print(f"         files: {path}", flush=True)
        elif keep is None:
            shutil.rmtree(path)
    return results


def line(result: ProgramResult) -> str:
    """One seed in one line."""
    verdict = f"{len(result.violations)} VIOLATIONS" if result.violations else "ok"
    return (
        f"seed {result.world.seed:2}  {verdict}  {result.completed} completed, {result.failed} "
        f"failed of {result.world.rollouts}, {result.attempts} attempts, {result.wall_s:.0f} s  "
        f"[{_counts(result.faults)}]  [{_counts(result.failures)}]"
    )


def table(results: Sequence[ProgramResult]) -> str:
    """All seeds, and what was done to them."""
    lines = [
        "",
        "| seed | rollouts | completed | failed | attempts | kills | seconds | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in results:
        cells = (
            one.world.seed, one.world.rollouts, one.completed, one.failed, one.attempts,
            one.faults.total(), f"{one.wall_s:.0f}",
            f"{len(one.violations)} violations" if one.violations else "ok",
        )  # fmt: skip
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    faults = sum((one.faults for one in results), Counter[str]())
    missed = sum((one.missed for one in results), Counter[str]())
    lines += [
        "",
        f"{sum(one.world.rollouts for one in results)} rollouts asked for, "
        f"{sum(len(one.violations) for one in results)} violations",
        f"kills: {_counts(faults)}",
        f"not done: {_counts(missed) or 'none'}",
    ]
    return "\n".join(lines)


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())


if __name__ == "__main__":
    sys.exit(main())
