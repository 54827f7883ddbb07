"""How chaos runs are run one after another, and reported: for all `__main__` of these folders."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar


class SeedResult(Protocol):
    """What a seed came to."""

    @property
    def violations(self) -> Sequence[str]:
        """What the judge found, a sentence each."""


R = TypeVar("R", bound=SeedResult)


def seeds_of(text: str) -> range:
    """The seeds of an option: `7`, or `0-19`."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


async def until_stopped(running: Coroutine[None, None, list[R]]) -> list[R]:
    """Ends early on SIGTERM, too, with all that was started and mounted taken away."""
    task = asyncio.ensure_future(running)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


async def run_seeds(
    seeds: Iterable[int],
    keep: Path | None,
    run: Callable[[int, Path], Awaitable[R]],
    told: Callable[[R], Sequence[str]],
) -> list[R]:
    """Runs seeds one after another and prints each.

    Args:
        keep: where the files of all seeds stay; None: only those of a seed with violations do.
        run: one seed, in a folder of its own.
        told: the lines of a result, before its violations.
    """
    results = []
    base = keep or Path(tempfile.mkdtemp(prefix="gymmesh-chaos-"))
    for seed in seeds:
        path = base / f"seed-{seed:02d}"
        shutil.rmtree(path, ignore_errors=True)
        result = await run(seed, path)
        results.append(result)
        first, *more = told(result)
        print(first, flush=True)
        for line in (*more, *(f"VIOLATION {violation}" for violation in result.violations)):
            print(f"         {line}", flush=True)
        if result.violations:
            print(f"         the files of this seed: {path}", flush=True)
        elif keep is None:
            shutil.rmtree(path)
    return results


def verdict_of(result: SeedResult) -> str:
    """The word ok, or the number of violations."""
    count = len(result.violations)
    return f"{count} violation{'s' * (count > 1)}" if count else "ok"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], below: Sequence[str]) -> str:
    """A table in Markdown, and the lines below it."""
    lines = ["", _row(columns), "|---" * len(columns) + "|"]
    return "\n".join((*lines, *map(_row, rows), "", *below))


def counts(found: Counter[str]) -> str:
    """Names with their counts, the most frequent first."""
    return ", ".join(f"{name} {count}×" for name, count in found.most_common())


def _row(cells: Sequence[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"
