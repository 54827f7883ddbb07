"""deploy/slurm/mesh.sbatch in a real Slurm: a mesh over three nodes that is preempted twice."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.slurm.cluster import NODES, Cluster, until
from tests.support.cli import gym, rows_of, sums, write_tasks
from tests.support.docs import ROOT

SCRIPT = ROOT / "deploy" / "slurm" / "mesh.sbatch"
TASKS = 150
BOUND_S = 240.0


class Run:
    """A mesh file, tasks, and the folder for what comes of them."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        recording = folder / "answers.jsonl"
        recording.write_text(json.dumps({"match": "*", "answers": [{"text": "4"}]}) + "\n")
        self.mesh = folder / "mesh.yaml"
        self.mesh.write_text(
            f"models: {{policy: {{backend: replay, path: '{recording}'}}}}\nmesh: {{drain_s: 5}}\n"
        )
        self.tasks = write_tasks(folder, sums(TASKS))
        self.folder = folder / "out"
        self.rows = self.folder / "rollouts.jsonl"

    async def submit(self, *more: str | Path, flags: Sequence[str] = (f"--nodes={NODES}",)) -> str:
        """Submits the job, with flags for Slurm; returns its number."""
        program = Path(sys.executable).parent / "gym-cli"
        out = await self._cluster.say(
            "sbatch", "--parsable", *flags, "--output=job.log", SCRIPT,
            self.mesh, self.tasks, self.folder, *more,
            env={
                "GYM_CLI": str(program),
                "MESH_HOST": "127.0.0.1",
                "MESH_ADVERTISE": "127.0.0.1",
            },
        )  # fmt: skip
        return out.strip()

    async def has_rows(self, count: int) -> None:
        """Waits until so many rollouts are on disk."""

        async def there() -> bool:
            return len(rows_of_what_is_whole(self.rows)) >= count

        await until(there, BOUND_S)

    def log(self) -> str:
        """What the job said."""
        return (self._cluster.folder / "job.log").read_text(errors="replace")

    def starts(self) -> list[str]:
        """The folders of the job's starts."""
        return sorted(one.name for one in (self.folder / "services").iterdir())

    def said(self, start: str, text: str) -> int:
        """In how many of a start's services' logs a text stands."""
        logs = (self.folder / "services" / start).glob("*.log")
        return sum(text in one.read_text(errors="replace") for one in logs)


def rows_of_what_is_whole(path: Path) -> list[str]:
    """The lines of a file that is being written."""
    text = path.read_text() if path.exists() else ""
    return text.splitlines()[: text.count("\n")]


@pytest.fixture
def run(cluster: Cluster, tmp_path: Path) -> Run:
    return Run(cluster, tmp_path)


async def test_a_mesh_goes_on_where_it_was_when_its_job_was_ended(
    cluster: Cluster, run: Run
) -> None:
    job = await run.submit("--starts-per-s", "10")
    await run.has_rows(10)
    # As when the time is nearly over: the script ends in order, and asks to be started again.
    await cluster.say("scancel", "--batch", "--signal=TERM", job)
    await cluster.reaches(job, "PENDING")
    first = len(rows_of(run.rows))
    assert 10 <= first < TASKS
    assert run.said(f"{job}-0", "is draining") == 3 * NODES + 1

    await cluster.start_again(job)
    await run.has_rows(first + 10)
    # As when Slurm preempts: it ends everything, and puts the job back itself.
    await cluster.say("scontrol", "requeue", job)
    await cluster.start_again(job)
    assert await cluster.reaches(job, "COMPLETED", "FAILED", "CANCELLED") == "COMPLETED", run.log()

    assert run.starts() == [f"{job}-{start}" for start in range(3)]
    times = Counter(row["task_id"] for row in rows_of(run.rows))
    assert times == Counter(f"sum-{number}" for number in range(TASKS))
    assert f"{TASKS} completed (" in run.log()


async def test_the_jobs_of_an_array_collect_a_run_s_shards(cluster: Cluster, run: Run) -> None:
    # A range that does not begin at 0 has shards from 0, too.
    array = await run.submit(flags=("--nodes=1", f"--array=1-{NODES}"))
    for number in range(1, NODES + 1):
        job = f"{array}_{number}"
        state = await cluster.reaches(job, "COMPLETED", "FAILED", "CANCELLED")
        assert state == "COMPLETED", run.log()
    outputs = sorted(run.folder.glob("*/rollouts.jsonl"))
    assert [path.parent.name for path in outputs] == [str(number) for number in range(NODES)]
    done = await gym("runs", "merge", run.rows, *outputs)
    assert done.code == 0, done.err
    rows = rows_of(run.rows)
    assert [row["task_id"] for row in rows] == [f"sum-{number}" for number in range(TASKS)]
    assert {row["run_id"] for row in rows} == {f"slurm-{array}"}


async def test_a_service_that_cannot_start_ends_the_job_with_its_reason(
    cluster: Cluster, run: Run
) -> None:
    run.mesh.write_text(run.mesh.read_text().replace("answers.jsonl", "nowhere.jsonl"))
    job = await run.submit()
    assert await cluster.reaches(job, "COMPLETED", "FAILED") == "FAILED"
    assert "a service did not become SERVING" in run.log()
    assert "nowhere.jsonl" in run.log()
    assert "Traceback" not in run.log()


async def test_a_mesh_file_that_is_wrong_is_refused_with_its_line(
    cluster: Cluster, run: Run
) -> None:
    run.mesh.write_text("models: {policy: {backnd: replay}}\n")
    job = await run.submit()
    assert await cluster.reaches(job, "COMPLETED", "FAILED") == "FAILED"
    assert "mesh.yaml:1: models.policy.backnd: unknown key; did you mean 'backend'?" in run.log()
    assert not os.path.exists(run.rows)
