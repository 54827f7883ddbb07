"""Inspect's tasks with its own code behind them: rewards equal to its own runner's, and faults."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from aiohttp import web

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource import DefinitionError, ModelEndpoint
from gymmesh_resource.environments.inspect import InspectEnvironment
from gymmesh_resource.task import Task
from gymmesh_responses import new_message
from gymmesh_runtime.errors import MeshError
from tests.bridges.inspect.endpoint import endpoint, serving
from tests.unit.resource.served import Served, served

_HERE: Final = Path(__file__).parent
_SUITE: Final = _HERE / "suite.py"
_TASKS: Final = ("sums", "letters", "graded", "partial", "files", "agent")
_SCORES: Final = {"partial": "distance.near"}
_RUN_S: Final = 1500.0
# Far more than a start, a call or a verdict takes, and what a hang is given, in which others end.
_STEP_S: Final = 600.0
_HANG_S: Final = 15.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def own_rewards(
    bridge_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, float]]:
    """Inspect's own, by task and sample."""
    wanted = [f"{name}={_SCORES.get(name, '')}" for name in _TASKS]
    logs = tmp_path_factory.mktemp("logs")
    async with endpoint() as url:
        said = await _run(bridge_python, _HERE / "own_runner.py", url, logs, *wanted)
    rewards: dict[str, dict[str, float]] = json.loads(said)
    return rewards


# On the loop of the fixture that the tests share: else each test would make it anew.
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("solver", ["ours", "own"])
async def test_rewards_are_those_of_inspects_own_runner(
    bridge_python: Path, tmp_path: Path, own_rewards: dict[str, dict[str, float]], solver: str
) -> None:
    async with endpoint() as url:
        rows = await _collect(bridge_python, tmp_path, url, solver)
    found: dict[str, dict[str, float]] = {name: {} for name in _TASKS}
    for row in rows:
        found[row["environment"]][row["task_id"].removeprefix(f"{row['environment']}/")] = row[
            "reward"
        ]
    assert found == own_rewards
    assert sum(map(len, found.values())) == 100
    for name in _TASKS:  # right and wrong ones
        assert len(set(found[name].values())) > 1, name


async def test_scores_are_components_and_explain_the_verdict(bridge_python: Path) -> None:
    environment = _environment(bridge_python, "partial", score="match")
    async with served(environment, turn_timeout_s=_STEP_S, verify_timeout_s=_STEP_S) as mesh:
        verdict = await _verdict(mesh, environment, "sum-1", "It is 13")
    components = {part.name: part.value for part in verdict.components}
    assert verdict.reward == 0.0
    assert components == {"distance.near": 1 / 3, "distance.exact": 0.0, "match": 0.0}
    evidence = json.loads(verdict.evidence_json)
    assert evidence["scores"]["distance"]["explanation"] == "off by 2"


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("raises", "the scorer broke"),
        ("word", "which Inspect can't convert to a number"),
        ("nothing", "the scorers returned no score"),
        ("dies", "ended (status 7)"),
    ],
)
async def test_a_scorers_fault_is_no_reward(bridge_python: Path, kind: str, problem: str) -> None:
    environment = _environment(bridge_python, "faulty")
    async with served(environment, turn_timeout_s=_STEP_S, verify_timeout_s=_STEP_S) as mesh:
        with pytest.raises(MeshError) as caught:
            await _verdict(mesh, environment, kind, "x")
        assert caught.value.reason_name == "VERIFIER_FAULT"
        assert problem in str(caught.value)
        # A process that died is replaced.
        assert (await _verdict(mesh, environment, "good", "x")).reward == 1.0


async def test_a_scorer_that_hangs_is_given_up(bridge_python: Path) -> None:
    environment = _environment(bridge_python, "faulty")
    async with served(environment, turn_timeout_s=_STEP_S, verify_timeout_s=_HANG_S) as mesh:
        with pytest.raises(MeshError) as caught:
            await _verdict(mesh, environment, "hangs", "x")
        assert caught.value.reason_name == "VERIFIER_TIMEOUT"
        assert (await _verdict(mesh, environment, "good", "x")).reward == 1.0


async def test_an_unscored_sample_is_skipped(bridge_python: Path) -> None:
    environment = _environment(bridge_python, "faulty")
    async with served(environment, turn_timeout_s=_STEP_S, verify_timeout_s=_STEP_S) as mesh:
        verdict = await _verdict(mesh, environment, "unscored", "x")
    assert verdict.status == rollout_pb2.VERIFICATION_STATUS_SKIPPED
    assert not verdict.HasField("reward")
    assert verdict.reason == "nothing to score"


async def test_a_solver_that_raises_is_the_environments_fault(bridge_python: Path) -> None:
    environment = _environment(bridge_python, "faulty")
    async with served(environment, turn_timeout_s=_STEP_S, verify_timeout_s=_STEP_S) as mesh:
        with pytest.raises(MeshError, match="the solver broke") as caught:
            await mesh.create(_task(environment, "solver"))
    assert caught.value.reason_name == "ENVIRONMENT_FAULT"


async def test_a_scorers_model_must_be_allowed(bridge_python: Path) -> None:
    environment = _environment(bridge_python, "graded")
    async with served(environment, turn_timeout_s=_STEP_S, verify_timeout_s=_STEP_S) as mesh:
        with pytest.raises(MeshError, match="option `judge: true`") as caught:
            await _verdict(mesh, environment, "sum-1", "11")
    assert caught.value.reason_name == "VERIFIER_FAULT"


async def test_one_bad_sample_spoils_no_other(bridge_python: Path) -> None:
    environment = _environment(bridge_python, "broken")
    assert [row["task_id"] for row in environment.tasks()] == ["good", "bad"]
    async with served(environment, turn_timeout_s=_STEP_S, verify_timeout_s=_STEP_S) as mesh:
        with pytest.raises(MeshError, match="requires samples with choices") as caught:
            await mesh.create(_task(environment, "bad"))
        assert caught.value.reason_name == "TASK_INVALID"
        assert (await _verdict(mesh, environment, "good", "ANSWER: A")).reward == 1.0


async def test_an_episode_that_is_stopped_is_judged_by_what_there_is(bridge_python: Path) -> None:
    environment = _environment(bridge_python, "sums", solver="own")
    asked = asyncio.Event()

    async def never(_request: web.Request) -> web.Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with (
        serving(never) as url,
        served(environment, turn_timeout_s=_STEP_S, verify_timeout_s=_STEP_S) as mesh,
    ):
        task = _task(environment, "sum-1")
        session = (await mesh.create(task)).session_id
        (opened,) = environment._open.values()
        playing = asyncio.ensure_future(environment.play(opened, ModelEndpoint(url, "key", "m")))
        await asyncio.wait_for(asked.wait(), _STEP_S)
        playing.cancel()
        await asyncio.wait([playing])
        verdict = await mesh.verify(session, task)
    assert verdict.reward == 0.0
    assert json.loads(verdict.evidence_json)["scores"]["match"]["value"] == "I"


def test_an_interpreter_without_inspect_is_named() -> None:
    environment = InspectEnvironment(task=f"{_SUITE}@sums", python=sys.executable)
    with pytest.raises(DefinitionError, match=r"lacks the package inspect-ai: run .* -m pip inst"):
        list(environment.tasks())


def test_a_task_that_is_not_there_is_named(bridge_python: Path) -> None:
    environment = InspectEnvironment(task=f"{_SUITE}@other", python=str(bridge_python))
    with pytest.raises(DefinitionError, match=r"could not be loaded: .*'other' not found"):
        list(environment.tasks())


def _environment(python: Path, name: str, **options: Any) -> InspectEnvironment:
    return InspectEnvironment(
        task=f"{_SUITE}@{name}", python=str(python), start_timeout_s=_STEP_S, **options
    )


def _task(environment: InspectEnvironment, task_id: str) -> rollout_pb2.Task:
    row = next(row for row in environment.tasks() if row["task_id"] == task_id)
    return Task.of({**row, "environment": "e"}).message


async def _verdict(
    mesh: Served, environment: InspectEnvironment, task_id: str, answer: str
) -> rollout_pb2.Verification:
    task = _task(environment, task_id)
    session = (await mesh.create(task)).session_id
    try:
        return await mesh.verify(session, task, [new_message("assistant", answer)])
    finally:
        await mesh.close(session)


async def _collect(python: Path, folder: Path, url: str, solver: str) -> list[dict[str, Any]]:
    """The rows of all tasks, by gym-cli as its users call it."""
    environments: dict[str, Mapping[str, Any]] = {}
    lines = []
    for name in _TASKS:
        options: dict[str, Any] = {
            "task": f"{_SUITE}@{name}", "python": str(python), "start_timeout_s": _STEP_S,
        }  # fmt: skip
        options["solver"] = solver
        if name in _SCORES:
            options["score"] = _SCORES[name]
        environments[name] = {
            "use": "inspect",
            "options": {**options, "judge": name == "graded"},
            "models": {"judge": "policy"} if name == "graded" else {},
            "sandboxes": {"sandbox": "boxes"} if name == "files" else {},
            "turn_timeout_s": _STEP_S,
            "tool_timeout_s": _STEP_S,
            "verify_timeout_s": _STEP_S,
        }
        for row in InspectEnvironment(**options).tasks():
            lines.append({**row, "task_id": f"{name}/{row['task_id']}", "environment": name})
    program = {"use": "program", "options": {"program": "environment", "timeout_s": _RUN_S}}
    config = {
        "models": {"policy": {"backend": "chat", "url": url, "model": "scripted"}},
        "environments": environments,
        "sandboxes": {"boxes": {"adapts": False, "options": {"folder": str(folder / "boxes")}}},
        "agents": {"player": {"max_steps": 10} if solver == "ours" else program},
        "defaults": {"agent": "player"},
    }
    (folder / "mesh.json").write_text(json.dumps(config))
    (folder / "tasks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    output = folder / "rollouts.jsonl"
    words = ["collect", "--config", folder / "mesh.json", "--input", folder / "tasks.jsonl",
             "--output", output, "--concurrency", 16, "--max-attempts", 1]  # fmt: skip
    said = await _run(Path(sys.executable), "-m", "gymmesh_cli.main", *words)
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(rows) == len(lines), said
    return rows


async def _run(python: Path, *words: object) -> str:
    process = await asyncio.create_subprocess_exec(
        str(python), *map(str, words), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), _RUN_S)
    assert process.returncode == 0, (out + err).decode()[-6000:]
    return out.decode()
