"""A collector that is killed again and again: what it acknowledged is there, once, unchanged."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from gymmesh_client import open_run
from gymmesh_responses import loads

ROLLOUTS = 4000
BOUND_S = 240.0


def collect(path: Path, layout: tuple[int, bool], kill_after: int | None) -> list[bytes]:
    """Run the collector, kill it after so many acknowledgements; what it acknowledged."""
    script = Path(__file__).with_name("killed_collector.py")
    shard_rows, zstd = layout
    command = [sys.executable, script, path, ROLLOUTS, shard_rows, zstd]
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE)
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if len(said) == kill_after:
            process.kill()
    process.wait(BOUND_S)
    process.stdout.close()
    assert kill_after is not None or process.returncode == 0
    # The last line may be half said.
    return [line.rstrip(b"\n") for line in said if line.endswith(b"\n")]


@pytest.mark.parametrize("layout", [(0, False), (500, True)], ids=["plain", "shards-zstd"])
def test_killed_again_and_again(tmp_path: Path, layout: tuple[int, bool]) -> None:
    path, chance = tmp_path / "out.jsonl", random.Random(7)
    acknowledged: list[bytes] = []
    for kill_after in [*(chance.randrange(1, 900) for _ in range(4)), None]:
        acknowledged += collect(path, layout, kill_after)
        with open_run(path) as run:
            for line in acknowledged:
                assert run.line(loads(line)["rollout_id"]) == line
    with open_run(path) as run:
        rows = [*run.rows(), *run.failures()]
        assert (len(rows), run.completed + run.failed) == (ROLLOUTS, ROLLOUTS)
    assert sorted(row["task_id"] for row in rows) == sorted(f"t-{n}" for n in range(ROLLOUTS))
    assert len({row["pid"] for row in rows}) == 5
