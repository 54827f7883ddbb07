"""What the chart starts, started: the commands of its pods as processes on addresses of their own.

The chart's own test and its collecting Job are run as they stand; see processes.py.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.chart import Chart, Rendered
from tests.deploy.processes import GYM_CLI, Pods, run, running
from tests.support.cli import rows_of, sums, write_tasks


@pytest.fixture
def pods(chart: Chart, tmp_path: Path) -> Pods:
    folder = tmp_path / "gymmesh"
    folder.mkdir()
    return Pods(chart, folder)


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, str]:
    """An environment in which `gym-cli` is this one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "gym-cli"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gymmesh_cli "$@"\n')
    program.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


async def test_its_pods_make_a_mesh_that_its_test_and_its_job_can_use(
    pods: Pods, programs: dict[str, str], tmp_path: Path
) -> None:
    (check,) = (one for one in pods.rendered.workloads() if one.manifest["kind"] == "Pod")
    _, *checking = map(pods.resolved, check.container["command"])
    async with AsyncExitStack() as stack:
        for service in pods.services:
            await stack.enter_async_context(running(pods.command(service), pods.folder))
        code, said = await run(sys.executable, *checking)
        assert code == 0, said
        assert said.count(" SERVING\n") == len(pods.services) == 4

        volume = tmp_path / "rollouts"
        for rollouts in (5, 9):
            # The second time as after a preemption: what is there is kept.
            code, said = await run(*_job(pods, tmp_path, rollouts), env=programs)
            assert code == 0, said
            rows = rows_of(volume / "first" / "rollouts.jsonl")
            assert sorted(row["task_id"] for row in rows) == [f"sum-{n}" for n in range(rollouts)]
            right = [row["task_id"] for row in rows if row["reward"] == 1.0]
            assert right == ["sum-3"]  # the recording says 4 to everything
    # Nobody is there any more, and the chart's test says so.
    code, said = await run(sys.executable, *(one.replace("=30", "=1") for one in checking))
    assert code == 1
    assert "UNAVAILABLE" in said or "DEADLINE_EXCEEDED" in said


async def test_an_indexed_job_collects_all_shards_of_a_run(
    chart: Chart, pods: Pods, programs: dict[str, str], tmp_path: Path
) -> None:
    more = ("collect.first.shards=3", "collect.first.storage.accessMode=ReadWriteMany")
    sharded = chart.render("small", *(f"--set={one}" for one in more))
    (job,) = sharded.of("Job")
    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 3)
    assert spec["backoffLimitPerIndex"] == 6
    assert "backoffLimit" not in spec
    folder = tmp_path / "rollouts" / "first"
    async with AsyncExitStack() as stack:
        for service in pods.services:
            await stack.enter_async_context(running(pods.command(service), pods.folder))
        # Every pod of the Job has the same command; Kubernetes numbers them from 0.
        command = _job(pods, tmp_path, 9, sharded)
        variables = [programs | {"JOB_COMPLETION_INDEX": str(index)} for index in range(3)]
        for _ in range(2):  # the second time as after a preemption
            done = await asyncio.gather(*(run(*command, env=one) for one in variables))
            assert [code for code, _ in done] == [0, 0, 0], done
    outputs = [str(path) for path in sorted(folder.glob("*/rollouts.jsonl"))]
    assert [Path(path).parent.name for path in outputs] == ["0", "1", "2"]
    code, said = await run(*GYM_CLI, "runs", "merge", str(folder / "rollouts.jsonl"), *outputs)
    assert code == 0, said
    rows = rows_of(folder / "rollouts.jsonl")
    assert [row["task_id"] for row in rows] == [f"sum-{n}" for n in range(9)]
    assert {row["run_id"] for row in rows} == {"mesh-gymmesh-collect-first"}


async def test_shards_of_a_schedule_are_one_run_each_time(chart: Chart) -> None:
    more = ("collect.nightly.shards=4", "collect.nightly.parallelism=2")
    rendered = chart.render("external-vllm", *(f"--set={one}" for one in more))
    (cron,) = rendered.of("CronJob")
    spec = cron["spec"]["jobTemplate"]["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 2)
    (container,) = spec["template"]["spec"]["containers"]
    script = container["command"][2]
    assert 'output="/rollouts/nightly/$JOB/$JOB_COMPLETION_INDEX/rollouts.jsonl"' in script
    assert '--run-id "$JOB" --shard "$JOB_COMPLETION_INDEX/4"' in script


def _job(pods: Pods, tmp_path: Path, tasks: int, rendered: Rendered | None = None) -> list[str]:
    """What the Job's container runs, with its volumes in a folder, and its first tasks."""
    workloads = (rendered or pods.rendered).workloads()
    (job,) = (one for one in workloads if one.manifest["kind"] == "Job")
    container = job.container
    write_tasks(tmp_path, sums(9))
    # Between the two runs nothing that is part of the run's identity may change.
    more = ["--limit", str(tasks)]
    replaced = {"/rollouts/": f"{tmp_path}/rollouts/", "/tasks/": f"{tmp_path}/"}
    found = [pods.resolved(one) for one in (*container["command"], *container["args"])]
    for before, after in replaced.items():
        found = [one.replace(before, after) for one in found]
    return [*found, *more]


async def test_the_job_of_a_schedule_has_a_folder_for_each_time(chart: Chart) -> None:
    (job,) = (
        one
        for one in chart.render("external-vllm").workloads()
        if one.manifest["kind"] == "CronJob"
    )
    script: str = job.container["command"][2]
    assert 'output="/rollouts/nightly/$JOB/rollouts.jsonl"' in script
    variables: list[dict[str, Any]] = job.container["env"]
    (name,) = (one for one in variables if one["name"] == "JOB")
    field = name["valueFrom"]["fieldRef"]["fieldPath"]
    assert field == "metadata.labels['batch.kubernetes.io/job-name']"
    assert "--resume --retry failed" in script
    assert job.manifest["spec"]["concurrencyPolicy"] == "Forbid"
