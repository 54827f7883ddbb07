"""Measures the CPU cost of the journal, and a run of a million rollouts.

    make bench-journal
    python tests/scale/bench_journal.py --rollouts 100000     for another number of rollouts

First part: the CPU per recorded rollout of the journal, and of a program that only appends rows
and syncs them in groups, with different numbers of rollouts in flight. Both alternate in one
process. The result is the ratio. Second part: memory, the time to reopen the run, the time to
build the index, and the time to read one rollout.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

from gymmesh_client import OpenOptions, OutputFiles, RunIdentity, RunOutput, open_run

ONE: Final = RunIdentity("t", "c")
ROW_BYTES: Final = 3000
RECORDED: Final = 20_000
ROUNDS: Final = 3
MIB: Final = 1024 * 1024


class RowsAlone:
    """Appends rows to one file; those that come within 5 ms share a sync. Knows nothing else."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._flusher: asyncio.Task[None] | None = None

    async def append(self, row: bytes) -> None:
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((row + b"\n", done))
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._flush())
        await done

    async def _flush(self) -> None:
        while self._waiting:
            await asyncio.sleep(0.005)
            batch, self._waiting = self._waiting, []
            await asyncio.to_thread(self._write, [row for row, _ in batch])
            for _, done in batch:
                done.set_result(None)
        self._flusher = None

    def _write(self, rows: list[bytes]) -> None:
        for row in rows:
            os.write(self._fd, row)
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


async def in_flight(count: int, total: int, one: Callable[[int], Awaitable[None]]) -> float:
    """Do `one` for each number, so many side by side; CPU microseconds for each."""
    numbers = iter(range(total))

    async def worker() -> None:
        for number in numbers:
            await one(number)

    before = time.process_time()
    await asyncio.gather(*(worker() for _ in range(count)))
    return (time.process_time() - before) / total * 1e6


async def rows_alone(folder: Path, count: int, total: int) -> float:
    sink, row = RowsAlone(folder / "rows.jsonl"), b"x" * ROW_BYTES
    try:
        return await in_flight(count, total, lambda number: sink.append(row))
    finally:
        sink.close()


def opened(path: Path) -> RunOutput:
    return RunOutput.open(OutputFiles(path), ONE, OpenOptions(overwrite=True))


async def journalled(folder: Path, count: int, total: int) -> float:
    output, row = opened(folder / "run.jsonl"), b"x" * ROW_BYTES
    names = (output.rollout_id(f"t-{number}", 0) for number in range(total))
    handed = output.reserving(names, str)

    async def one(number: int) -> None:
        name, attempt = next(handed)
        await output.completed(name, attempt, row)

    try:
        return await in_flight(count, total, one)
    finally:
        await output.close()


def compare() -> None:
    """Print CPU per recorded rollout for both."""
    print(
        f"CPU to record one rollout, from {RECORDED} rollouts with rows of {ROW_BYTES} bytes. "
        "'rows alone' writes no journal:"
    )
    for count in (1, 64, 512):
        total = RECORDED if count > 1 else RECORDED // 40
        got: dict[str, list[float]] = {"rows alone": [], "journal": []}
        for _ in range(ROUNDS):
            for name, run in (("rows alone", rows_alone), ("journal", journalled)):
                with tempfile.TemporaryDirectory() as folder:
                    got[name].append(asyncio.run(run(Path(folder), count, total)))
        alone, ours = (statistics.median(one) for one in got.values())
        print(
            f"  {count:>4} in flight: rows alone {alone:7.1f} µs, journal {ours:7.1f} µs, "
            f"ratio {ours / alone:.2f}"
        )


def grown(before: int) -> float:
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before) / MIB


def rss() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def row_of(output: RunOutput, number: int) -> tuple[str, bytes]:
    name = output.rollout_id(f"t-{number}", 0)
    return name, json.dumps({"task_id": f"t-{number}", "rollout_id": name}).encode()


async def _fill(path: Path, total: int) -> None:
    output, before = opened(path), rss()
    handed = output.reserving(iter(range(total)), lambda one: output.rollout_id(f"t-{one}", 0))
    cpu = time.process_time()

    async def worker() -> None:
        for number, attempt in handed:
            name, row = row_of(output, number)
            await output.completed(name, attempt, row)

    await asyncio.gather(*(worker() for _ in range(512)))
    cpu = (time.process_time() - cpu) / total * 1e6
    print(f"  write         {cpu:9.1f} µs of CPU per rollout, {grown(before):.0f} MiB more memory")
    await output.close()


def _reopen(path: Path) -> None:
    before, cpu = rss(), time.process_time()
    output = RunOutput.open(OutputFiles(path), ONE, OpenOptions(resume=True))
    print(
        f"  resume        {time.process_time() - cpu:9.1f} s of CPU, {grown(before):.0f} MiB more "
        f"memory, {output.outcomes} outcomes (resuming reads every row)"
    )
    output.abandon()


def _index(path: Path) -> None:
    path.with_suffix(".index").unlink(missing_ok=True)
    before, cpu = rss(), time.process_time()
    with open_run(path):
        print(
            f"  build index   {time.process_time() - cpu:9.1f} s of CPU, {grown(before):.0f} MiB "
            "more memory, size of the index "
            f"{path.with_suffix('.index').stat().st_size / MIB:.0f} MiB"
        )


def _read(path: Path, total: int) -> None:
    walls, chance = [], random.Random(1)
    for _ in range(200):
        number = chance.randrange(total)
        wall = time.perf_counter()
        with open_run(path) as run:
            row = run.get(f"t-{number}")
        walls.append(time.perf_counter() - wall)
        assert row is not None
        assert row["task_id"] == f"t-{number}"
    print(
        f"  read one row  {statistics.median(walls) * 1e3:9.2f} ms, including the time to open "
        f"the run (the slowest of 200 reads: {max(walls) * 1e3:.2f} ms)"
    )


@contextlib.contextmanager
def _kept(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def million(total: int) -> None:
    """Each step in a process of its own, so that memory is the step's."""
    print(f"A run of {total} rollouts with small rows:")
    with _kept(None) as folder:
        path = folder / "run.jsonl"
        for step in ("fill", "reopen", "index", "read"):
            command = [sys.executable, __file__, "--step", step, "--path", path]
            subprocess.run([*map(str, command), "--rollouts", str(total)], check=True)
        sizes = {one.suffix: one.stat().st_size / MIB for one in folder.iterdir()}
        print("  files         " + ", ".join(f"{k} {v:.0f} MiB" for k, v in sorted(sizes.items())))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make bench-journal",
        description="Measures the CPU cost of the journal, and a run of a million rollouts.",
    )
    parser.add_argument(
        "--rollouts", type=int, default=1_000_000, help="rollouts of the run (default: 1000000)"
    )
    parser.add_argument(
        "--step",
        choices=["fill", "reopen", "index", "read", "compare"],
        help="run only this step. Steps other than compare need --path",
    )
    parser.add_argument("--path", type=Path, help="the rows of the run, for --step")
    asked = parser.parse_args()
    if asked.step == "fill":
        asyncio.run(_fill(asked.path, asked.rollouts))
    elif asked.step == "reopen":
        _reopen(asked.path)
    elif asked.step == "index":
        _index(asked.path)
    elif asked.step == "read":
        _read(asked.path, asked.rollouts)
    else:
        compare()
        if asked.step is None:
            million(asked.rollouts)


if __name__ == "__main__":
    main()
