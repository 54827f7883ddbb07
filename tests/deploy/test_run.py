"""What the chart starts, started: the commands of its pods as processes on addresses of their own.

Each pod is a process that listens on 127.0.0.N; names of Services are put in by hand, as there is
nobody to resolve them. Then the chart's own test and its collecting Job are run as they stand.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.chart import NAMESPACE, Chart, Rendered, Workload
from tests.support.cli import rows_of, sums, write_tasks

BOUND_S = 120.0
GYM_CLI = [sys.executable, "-m", "gymmesh_cli"]


class Pods:
    """The services of the chart with its smallest values, each with an address."""

    def __init__(self, chart: Chart, folder: Path) -> None:
        self.rendered = chart.render("small")
        self.folder = folder
        (folder / "mesh.yaml").write_text(self.rendered.file("mesh.yaml"))
        (folder / "answers.jsonl").write_text(self.rendered.file("answers.jsonl"))
        self.services = self.rendered.services()
        self._hosts = {one.name: f"127.0.0.{7 + at}" for at, one in enumerate(self.services)}

    def resolved(self, text: str) -> str:
        """A text with addresses in place of Services' names."""
        for name, host in self._hosts.items():
            text = text.replace(f"{name}.{NAMESPACE}.svc:", f"{host}:")
        return text.replace("/etc/gymmesh/", f"{self.folder}/")

    def command(self, service: Workload) -> list[str]:
        """What a service's container runs."""
        host = self._hosts[service.name]
        variables = {"POD_IP": host, "POD_NAME": f"{service.name}-0"}
        arguments = [
            re.sub(r"\$\((\w+)\)", lambda found: variables[found[1]], self.resolved(one))
            for one in service.container["args"]
        ]
        assert "--host=0.0.0.0" in arguments
        return [f"--host={host}" if one == "--host=0.0.0.0" else one for one in arguments]


@asynccontextmanager
async def running(arguments: Sequence[str], folder: Path) -> AsyncIterator[Process]:
    """A process of gym-cli, which must end with 0 when it is asked to, as a kubelet does it."""
    process = await asyncio.create_subprocess_exec(
        *GYM_CLI, *arguments, cwd=folder, stdin=DEVNULL, start_new_session=True
    )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(BOUND_S):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def run(*arguments: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    """A program's exit code, and what it said."""
    process = await asyncio.create_subprocess_exec(
        *arguments, stdin=DEVNULL, stdout=PIPE, stderr=asyncio.subprocess.STDOUT,
        env=os.environ | (env or {}),
    )  # fmt: skip
    async with asyncio.timeout(BOUND_S):
        out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


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
