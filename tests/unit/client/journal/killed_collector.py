"""Writes outcomes as fast as it can, and says each once it is acknowledged; to be killed.

python killed_collector.py FILE ROLLOUTS SHARD_ROWS ZSTD
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from gymmesh_client import OpenOptions, OutputFiles, RunIdentity, RunOutput


async def main(path: Path, rollouts: int, shard_rows: int, zstd: bool) -> None:
    files = OutputFiles(path, shard_rows or None, zstd)
    resume = files.journal.exists()
    output = RunOutput.open(files, RunIdentity("t", "c"), OpenOptions(resume=resume, delay_s=0.001))
    tasks = (f"t-{number}" for number in range(rollouts))
    wanted = (task for task in tasks if not output.has_outcome(task, 0))
    handed = output.reserving(wanted, lambda task: output.rollout_id(task, 0))
    workers = [work(output, handed) for _ in range(16)]
    await asyncio.gather(*workers)
    await output.close()


async def work(output: RunOutput, handed: Iterator[tuple[str, int]]) -> None:
    for task, attempt in handed:  # which the workers share
        name = output.rollout_id(task, 0)
        row = {"task_id": task, "rollout_id": name, "attempt": attempt, "pid": os.getpid()}
        line = json.dumps(row).encode()
        if attempt % 2:
            await output.completed(name, attempt, line)
        else:
            await output.failed(name, attempt, 1, line)
        os.write(1, line + b"\n")


if __name__ == "__main__":
    place, count, shard, compressed = sys.argv[1:]
    asyncio.run(main(Path(place), int(count), int(shard), compressed == "True"))
