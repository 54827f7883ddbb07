"""The chaos runs of sandboxes: python -m tests.chaos.sandboxes (`make chaos-sandboxes`).

docs/chaos.md explains them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.sandboxes.plan import sandbox_world
from tests.chaos.sandboxes.seed import SandboxResult, run_sandbox_seed
from tests.chaos.sandboxes.world import PODMAN


def main() -> int:
    """Runs the seeds one after another; 1 when anything was wrong."""
    parser = argparse.ArgumentParser(prog="make chaos-sandboxes")
    parser.add_argument("--seeds", default="0-7", help="such as 7, or 0-7 (the default)")
    parser.add_argument("--sandboxes", type=int, default=250, help="per seed, at least")
    parser.add_argument("--keep", type=Path, help="keep the files of all seeds in this folder")
    asked = parser.parse_args()
    first, _, last = asked.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    try:
        results = asyncio.run(_until_stopped(_run(seeds, asked.sandboxes, asked.keep)))
    except (asyncio.CancelledError, KeyboardInterrupt):
        print("interrupted; nothing is left running")
        return 130
    print(table(results))
    return 1 if any(one.violations for one in results) else 0


def backend_of(seed: int) -> str:
    """Each fourth seed is Podman's, where that is set up."""
    return "podman" if PODMAN in os.environ and seed % 4 == 3 else "bubblewrap"


async def _until_stopped(
    running: Coroutine[Any, Any, list[SandboxResult]],
) -> list[SandboxResult]:
    """Ends early on SIGTERM, too, with all that was started taken away."""
    task = asyncio.ensure_future(running)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


async def _run(seeds: Sequence[int], sandboxes: int, keep: Path | None) -> list[SandboxResult]:
    results = []
    base = keep or Path(tempfile.mkdtemp(prefix="gymmesh-chaos-"))
    for seed in seeds:
        path = base / f"seed-{seed:02d}"
        shutil.rmtree(path, ignore_errors=True)
        result = await run_sandbox_seed(sandbox_world(seed, sandboxes, backend_of(seed)), path)
        results.append(result)
        print(line(result), flush=True)
        for violation in result.violations:
            print(f"         VIOLATION {violation}", flush=True)
        if result.violations:
            print(f"         files: {path}", flush=True)
        elif keep is None:
            shutil.rmtree(path)
    return results


def line(result: SandboxResult) -> str:
    """One seed in one line."""
    verdict = f"{len(result.violations)} VIOLATIONS" if result.violations else "ok"
    return (
        f"seed {result.world.seed:2}  {result.world.backend}  {verdict}  {result.sandboxes} "
        f"sandboxes seen, {result.whole} of {result.lives} lives whole, {result.wall_s:.0f} s  "
        f"[{_counts(result.faults)}]  [{_counts(result.failures)}]"
    )


def table(results: Sequence[SandboxResult]) -> str:
    """All seeds, and what was done to them."""
    lines = [
        "",
        "| seed | backend | sandboxes seen | lives, whole | kills and cuts | last expired after, s "
        "| seconds | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in results:
        cells = (
            one.world.seed, one.world.backend, one.sandboxes, f"{one.lives}, {one.whole}",
            one.faults.total(), f"{one.expired_s:.0f}", f"{one.wall_s:.0f}",
            f"{len(one.violations)} violations" if one.violations else "ok",
        )  # fmt: skip
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    faults = sum((one.faults for one in results), Counter[str]())
    missed = sum((one.missed for one in results), Counter[str]())
    lines += [
        "",
        f"{sum(one.sandboxes for one in results)} sandboxes seen, "
        f"{sum(len(one.violations) for one in results)} violations",
        f"faults: {_counts(faults)}",
        f"not done: {_counts(missed) or 'none'}",
    ]
    return "\n".join(lines)


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())


if __name__ == "__main__":
    sys.exit(main())
