"""The environment `verifiers`, with a runner that speaks as verifiers' does."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource import DefinitionError
from gymmesh_resource.environments.verifiers import VerifiersEnvironment
from gymmesh_responses import items_from_json
from gymmesh_runtime.errors import MeshError
from tests.support.endpoint import FakeEndpoint
from tests.unit.resource.served import Served, served, task
from tests.unit.verifiers.results import episode, trace

RUNNER = Path(__file__).with_name("fake_runner.py")
KEY = "k-of-the-rollout"
TASKS = [
    {
        "key": f"key-{number}",
        "name": "",
        "messages": [{"role": "user", "content": f"What is {number} + {number}?"}],
    }
    for number in range(5)
]
ROW = task(verifiers={"index": 1, "key": "key-1"})


def environment(*, python: str = sys.executable, script: Path = RUNNER, **told: Any) -> Any:
    options = {key: told.pop(key) for key in ("solver", "limit") if key in told}
    told = {"tasks": TASKS, "result": episode(trace()), **told}
    made = VerifiersEnvironment(
        python=python, taskset="sums", variables={"RUNNER": json.dumps(told)}, **options
    )
    made._options = replace(made._options, script=script)
    return made


@asynccontextmanager
async def played(**told: Any) -> AsyncIterator[tuple[Served, str]]:
    """A session of the second task, and an endpoint that can be connected to."""
    async with served(environment(**told)) as mesh, FakeEndpoint() as endpoint:
        session_id = (await mesh.create(ROW)).session_id
        mesh.endpoint = resource_pb2.ModelEndpoint(  # type: ignore[attr-defined]
            base_url=endpoint.url, key=KEY, model="policy"
        )
        yield mesh, session_id


async def play(mesh: Any, session_id: str) -> None:
    request = resource_pb2.PlayEpisodeRequest(session_id=session_id, endpoint=mesh.endpoint)
    await mesh.resource.PlayEpisode(request, timeout=60)


def test_each_task_is_a_row() -> None:
    rows = list(environment().tasks())
    assert [row["task_id"] for row in rows] == [f"sums-{number}" for number in range(5)]
    assert rows[3]["verifiers"] == {"index": 3, "key": "key-3"}
    assert rows[3]["prompt"] == [{"role": "user", "content": "What is 3 + 3?"}]


def test_a_taskset_that_is_not_there_is_not_a_missing_verifiers(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"taskset: there is no file \./nope\.py \(current folder"):
        VerifiersEnvironment(python=sys.executable, taskset="./nope.py")
    script = tmp_path / "script.py"
    script.write_text("raise ModuleNotFoundError(\"No module named 'verifiers_of_mine'\")\n")
    with pytest.raises(DefinitionError, match=r"can't load the taskset: .*verifiers_of_mine"):
        list(environment(script=script).tasks())


def test_a_start_that_fails_is_one_sentence(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import verifiers.v1\n")
    with pytest.raises(
        DefinitionError, match=r"does not have the package `verifiers`\. Run .* -m pip install"
    ):
        list(environment(script=script).tasks())
    with pytest.raises(DefinitionError, match="can't load the taskset: ValueError: no such set"):
        list(environment(problem="no such set").tasks())
    with pytest.raises(DefinitionError, match="cannot be started: No such file"):
        list(environment(python=str(tmp_path / "python")).tasks())


async def test_an_episode_that_verifiers_played_has_its_verdict() -> None:
    async with played() as (mesh, session_id):
        await play(mesh, session_id)
        verdict = await mesh.verify(session_id, ROW)
    assert verdict.reward == 1.125
    assert {part.name: part.value for part in verdict.components} == {
        "right": 1.0,
        "brief": 0.5,
        "turns": 2.0,
    }


async def test_an_episode_that_failed_has_none() -> None:
    failed = trace(ok=False, errors=[{"type": "HarnessError", "message": "it broke"}])
    async with played(result=episode(failed, ok=False)) as (mesh, session_id):
        with pytest.raises(MeshError, match="HarnessError: it broke") as caught:
            await play(mesh, session_id)
    assert caught.value.reason == errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT


async def test_a_score_that_failed_is_the_verifiers_fault() -> None:
    failed = trace(ok=False, errors=[{"type": "TaskError", "message": "it broke"}])
    async with played(result=episode(failed, ok=False)) as (mesh, session_id):
        await play(mesh, session_id)
        with pytest.raises(MeshError, match="TaskError: it broke") as caught:
            await mesh.verify(session_id, ROW)
    assert caught.value.reason == errors_pb2.ERROR_REASON_VERIFIER_FAULT


async def test_an_episode_that_was_not_played_to_its_end_is_not_judged(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    async with played(hangs=str(begun)) as (mesh, session_id):
        playing = asyncio.create_task(play(mesh, session_id))
        while not begun.exists():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        with pytest.raises(MeshError, match="did not run the episode to its end") as caught:
            await mesh.verify(session_id, ROW)
    assert caught.value.reason == errors_pb2.ERROR_REASON_VERIFIER_FAULT


async def test_a_death_fails_the_episode_and_the_next_has_another_process() -> None:
    async with played(dies=True) as (mesh, session_id):
        for _ in range(2):
            with pytest.raises(MeshError, match=r"ended \(status 5\)") as caught:
                await play(mesh, session_id)
            assert caught.value.reason == errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT
            assert KEY not in caught.value.message
            session_id = (await mesh.create(ROW)).session_id


async def test_a_row_of_another_taskset_is_refused() -> None:
    async with played() as (mesh, _):
        for wrong in ({}, {"verifiers": {"index": -1}}, {"verifiers": {"index": True}}):
            with pytest.raises(MeshError) as caught:
                await mesh.create(task(**wrong))
            assert caught.value.reason == errors_pb2.ERROR_REASON_TASK_INVALID
        session_id = (await mesh.create(task(verifiers={"index": 99}))).session_id
        with pytest.raises(MeshError, match="no task at index 99") as caught:
            await play(mesh, session_id)
    assert caught.value.reason == errors_pb2.ERROR_REASON_TASK_INVALID


async def test_a_conversation_of_ours_is_scored() -> None:
    async with served(environment(solver="ours")) as mesh:
        session_id = (await mesh.create(task(verifiers={"index": 2}))).session_id
        for said, reward in (("It is 4.", 1.0), ("It is 5.", 0.0)):
            items = items_from_json([{"role": "assistant", "content": said}])
            verdict = await mesh.verify(session_id, task(verifiers={"index": 2}), transcript=items)
            assert verdict.status == rollout_pb2.VERIFICATION_STATUS_VERIFIED
            assert verdict.reward == reward
