"""Tasksets of verifiers as an environment: the rewards of its own evaluation, and its faults."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from gymmesh_resource.environments import verifiers
from tests.bridges.verifiers.runs import (
    SUBPROCESS,
    TASKSET,
    MeshRun,
    at_once,
    collect,
    own_runs,
    scripted,
)
from tests.support.endpoint import FakeEndpoint, Reply, status


async def both(
    python: Path,
    folder: Path,
    policy: Reply,
    taskset: Mapping[str, Any],
    env: Mapping[str, Any],
    **options: Any,
) -> tuple[MeshRun, dict[int, dict[str, Any]]]:
    """A run by a mesh, and one by verifiers' own evaluation, which asked the model as often."""
    async with FakeEndpoint(default=policy) as endpoint:
        whole = {**env, "taskset": {"id": TASKSET.stem, **taskset}}
        evaluation = {"env": whole, "url": endpoint.url, "output": str(folder / "own")}
        (scored,) = await own_runs(python, [evaluation])
        asked = len(endpoint.requests)
        run = await collect(folder, python, endpoint.url, taskset=taskset, env=env, **options)
        assert len(endpoint.requests) == 2 * asked, run.ended.err
    return run, {one["index"]: one for one in scored}


async def test_a_hundred_episodes_have_its_own_rewards(bridge_python: Path, tmp_path: Path) -> None:
    run, own = await both(bridge_python, tmp_path, scripted, {"tasks": 100}, SUBPROCESS)
    assert run.ended.code == 0, run.ended.err
    assert len(run.rows) == len(own) == 100
    for index, row in run.rows.items():
        assert row["reward"] == own[index]["reward"]
        components = {one["name"]: one for one in row["verification"]["components"]}
        scores = {name: components[name]["value"] for name in own[index]["rewards"]}
        assert scores == own[index]["rewards"]
        assert components["brief"]["weight"] == 0.25
        assert components["characters"]["value"] == own[index]["metrics"]["characters"]
        # Every call is captured, once.
        assert len(_answers(row)) == 2
    assert {row["reward"] for row in run.rows.values()} == {0.125, 0.25, 1.125, 1.25}


@pytest.mark.parametrize("harness", ["null", "bash"])
async def test_its_harnesses_play(bridge_python: Path, tmp_path: Path, harness: str) -> None:
    env = {"agent": {"harness": {"id": harness}, "runtime": {"type": "subprocess"}}}
    options = {"unsandboxed": harness == "bash"}
    run, own = await both(
        bridge_python, tmp_path, at_once, {"tasks": 6}, env, options=options, concurrency=2
    )
    assert run.ended.code == 0, run.ended.err
    assert _rewards(run) == {index: one["reward"] for index, one in own.items()}
    assert len(set(_rewards(run).values())) > 1


async def test_our_agent_plays_and_the_taskset_scores(bridge_python: Path, tmp_path: Path) -> None:
    env = {"agent": {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}}
    run, own = await both(
        bridge_python,
        tmp_path,
        at_once,
        {"tasks": 6},
        env,
        options={"solver": "ours"},
        agents={"ours": {"use": "tool_loop"}},
    )
    assert run.ended.code == 0, run.ended.err
    assert _rewards(run) == {index: one["reward"] for index, one in own.items()}


# What other people's code does, whose failure it is, and what of it is said.
FAULTS: Final = {
    "scorer": ("VERIFIER", "TaskError: task SumsTask scoring: ValueError: the scorer is"),
    "slow": ("VERIFIER", "scoring exceeded its time limit"),
    "endless": ("VERIFIER", "the reward 'correct' is nan"),
    "harness": ("RESOURCE", "HarnessError: harness 'sums_taskset' exited 1: the harness is"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def faulty(bridge_python: Path, tmp_path_factory: pytest.TempPathFactory) -> MeshRun:
    """A run of tasks of which every second one has a fault: one of each kind, twice."""
    async with FakeEndpoint(default=scripted) as endpoint:
        taskset = {"tasks": 4 * len(FAULTS), "faults": list(FAULTS)}
        folder = tmp_path_factory.mktemp("faulty")
        return await collect(folder, bridge_python, endpoint.url, taskset=taskset)


# On the loop of the fixture that the tests share: else each test would make it anew.
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_is_a_failure_of_its_task_alone(faulty: MeshRun, fault: str) -> None:
    assert sorted(faulty.rows) == list(range(0, 4 * len(FAULTS), 2)), faulty.ended.err
    boundary, said = FAULTS[fault]
    first = 2 * list(FAULTS).index(fault) + 1
    for failure in (faulty.failures[first], faulty.failures[first + 2 * len(FAULTS)]):
        assert failure["failure"]["boundary"] == boundary
        assert said in failure["failure"]["status"]["message"]
        assert failure["reward"] is None


async def test_a_death_fails_what_was_played_and_others_go_on(
    bridge_python: Path, tmp_path: Path
) -> None:
    async with FakeEndpoint(default=scripted) as endpoint:
        taskset = {"tasks": 6, "faults": ["die"]}
        run = await collect(tmp_path, bridge_python, endpoint.url, taskset=taskset, concurrency=1)
    assert sorted(run.rows) == [0, 2, 4], run.ended.err
    assert sorted(run.failures) == [1, 3, 5]
    for failure in run.failures.values():
        assert failure["failure"]["boundary"] == "RESOURCE"
        assert "ended (status 7)" in failure["failure"]["status"]["message"]


async def test_a_hang_is_ended_by_the_agents_time(bridge_python: Path, tmp_path: Path) -> None:
    async with FakeEndpoint(default=scripted) as endpoint:
        # The first task has all the time that a busy machine needs.
        run = await collect(
            tmp_path, bridge_python, endpoint.url, taskset={"tasks": 2, "faults": ["hang"]},
            concurrency=1, played_by=["patient", "hasty"],
            agents={
                name: {"use": "program", "options": {"program": "environment", "timeout_s": time_s}}
                for name, time_s in {"patient": 1_200, "hasty": 5}.items()
            },
        )  # fmt: skip
    assert sorted(run.rows) == [0], run.ended.err
    assert run.failures[1]["reward"] is None


async def test_a_model_that_fails_is_the_models_fault(bridge_python: Path, tmp_path: Path) -> None:
    async with FakeEndpoint(default=status(400)) as endpoint:
        run = await collect(tmp_path, bridge_python, endpoint.url, taskset={"tasks": 1})
    assert run.failures[0]["failure"]["boundary"] == "MODEL", run.ended.err


async def test_a_process_that_is_killed_fails_its_episodes(
    bridge_python: Path, tmp_path: Path
) -> None:
    waiting = asyncio.Event()

    async def killed(request: Any, seen: Any) -> Any:
        waiting.set()
        await asyncio.sleep(3600)

    async with FakeEndpoint(default=killed) as endpoint:
        running = asyncio.create_task(
            collect(tmp_path, bridge_python, endpoint.url, taskset={"tasks": 1})
        )
        asked = asyncio.create_task(waiting.wait())
        await asyncio.wait((asked, running), return_when=asyncio.FIRST_COMPLETED)
        assert asked.done(), (await running).ended.err
        for process in _peers(bridge_python):
            os.kill(process, signal.SIGKILL)
        run = await running
    assert run.failures[0]["failure"]["boundary"] == "RESOURCE", run.ended.err
    assert "killed by signal 9" in run.failures[0]["failure"]["status"]["message"]


async def test_a_start_that_fails_is_one_sentence(bridge_python: Path, tmp_path: Path) -> None:
    bash = {"agent": {"harness": {"id": "bash"}, "runtime": {"type": "subprocess"}}}
    run = await collect(tmp_path, bridge_python, "http://127.0.0.1:9/v1", taskset={}, env=bash)
    assert run.ended.code != 0
    run.ended.said("the harness 'bash' of the agent 'agent' would run the model's commands")
    wrong = {"agent": {"harness": {"id": "none"}, "runtime": {"type": "subprocess"}}}
    run = await collect(tmp_path, bridge_python, "http://127.0.0.1:9/v1", taskset={}, env=wrong)
    run.ended.said("verifiers can't load the taskset", "harness 'none' not found")


def _rewards(run: MeshRun) -> dict[int, float]:
    return {index: row["reward"] for index, row in run.rows.items()}


def _answers(row: Mapping[str, Any]) -> list[Any]:
    return [item for item in row["response"]["output"] if item.get("role") == "assistant"]


def _peers(python: Path) -> list[int]:
    """The processes that run verifiers for this checkout, without their guards."""
    script = os.fsencode(Path(verifiers.__file__).with_name("runner.py"))
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0] == os.fsencode(python) and script in words:
            found.append(int(folder.name))
    return found
