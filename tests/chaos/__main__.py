"""The chaos runs: python -m tests.chaos, which `make chaos` calls. docs/chaos.md explains it."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.plan import schedule_of, world_of
from tests.chaos.seed import Result, run_seed


def main() -> int:
    """Runs the seeds one after another; 1 when the judge found anything."""
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument("--seeds", default="0-19", help="such as 7, or 0-19 (the default)")
    parser.add_argument("--rollouts", type=int, default=500, help="per seed, at least")
    parser.add_argument("--keep", type=Path, help="keep the files of all seeds in this folder")
    parser.add_argument("--json", type=Path, help="write the results there, too")
    asked = parser.parse_args()
    first, _, last = asked.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    try:
        results = asyncio.run(_until_told(_run(seeds, asked.rollouts, asked.keep)))
    except (asyncio.CancelledError, KeyboardInterrupt):
        print("interrupted; nothing is left running")
        return 130
    print(table(results))
    if asked.json:
        asked.json.write_text(json.dumps([_as_json(one) for one in results], indent=1) + "\n")
    return 1 if any(one.violations for one in results) else 0


async def _until_told(running: Coroutine[Any, Any, list[Result]]) -> list[Result]:
    """Ends early on SIGTERM, too, with all that was started and mounted taken away."""
    task = asyncio.ensure_future(running)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


async def _run(seeds: Sequence[int], rollouts: int, keep: Path | None) -> list[Result]:
    results = []
    base = keep or Path(tempfile.mkdtemp(prefix="gymmesh-chaos-"))
    for seed in seeds:
        world = world_of(seed, rollouts)
        path = base / f"seed-{seed:02d}"
        shutil.rmtree(path, ignore_errors=True)
        result = await run_seed(world, schedule_of(world), path)
        results.append(result)
        print(line(result), flush=True)
        for note in result.notes:
            print(f"         note: {note}", flush=True)
        for violation in result.violations:
            print(f"         VIOLATION {violation}", flush=True)
        if result.violations:
            print(f"         files: {path}", flush=True)
        elif keep is None:
            shutil.rmtree(path)
    return results


def line(result: Result) -> str:
    """One seed in one line."""
    world = result.world
    names = Counter(f"{one['kind']}:{one['target']}" for one in result.faults)
    hit = ", ".join(f"{name}×{count}" if count > 1 else name for name, count in names.items())
    verdict = f"{len(result.violations)} VIOLATIONS" if result.violations else "ok"
    missed = f"; not done: {', '.join(result.missed)}" if result.missed else ""
    return (
        f"seed {world.seed:2}  {world.layout}/{world.api}  {verdict}  "
        f"{result.verdict['completed']} completed, {result.verdict.get('failed', 0)} failed "
        f"of {world.rollouts}, {len(result.sessions)} collectors, {result.wall_s:.0f} s  "
        f"[{hit}{missed}]"
    )


def table(results: Sequence[Result]) -> str:
    """All seeds, and what was done to them."""
    lines = [
        "",
        "| seed | layout | API | rollouts | completed | failed | collectors | faults | seconds "
        "| verdict |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in results:
        verdict, world = one.verdict, one.world
        cells = (
            world.seed, world.layout, world.api, world.rollouts, verdict["completed"],
            verdict.get("failed", 0), len(one.sessions), len(one.faults), f"{one.wall_s:.0f}",
            f"{len(one.violations)} violations" if one.violations else "ok",
        )  # fmt: skip
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    done = Counter(fault["kind"] for one in results for fault in one.faults)
    missed = sum(len(one.missed) for one in results)
    asked = sum(one.world.rollouts for one in results)
    lines += [
        "",
        f"{asked} rollouts asked for, {sum(len(one.violations) for one in results)} violations",
        "faults: " + ", ".join(f"{kind} {count}" for kind, count in done.most_common()),
        f"not done: {missed}",
    ]
    return "\n".join(lines)


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
