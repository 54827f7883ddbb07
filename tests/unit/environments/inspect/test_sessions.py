"""Sessions of the inspect environment, with a process that behaves as its samples are called."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource import DefinitionError, ModelEndpoint
from gymmesh_resource.environments.inspect import InspectEnvironment
from gymmesh_resource.task import Task
from gymmesh_responses import new_message
from gymmesh_runtime.errors import MeshError
from tests.unit.resource.served import Served, served


class Inspected(InspectEnvironment):
    script = Path(__file__).with_name("other_side.py")


@pytest.fixture(scope="module")
def environment() -> Inspected:
    return made()


@pytest.fixture
async def mesh(environment: Inspected) -> AsyncIterator[Served]:
    async with served(environment, verify_timeout_s=60, turn_timeout_s=60) as mesh:
        yield mesh


def made(**options: Any) -> Inspected:
    return Inspected(**{"task": "package/task", "python": sys.executable, **options})


def task_of(environment: Inspected, task_id: str) -> rollout_pb2.Task:
    row = next(row for row in environment.tasks() if row["task_id"] == task_id)
    return Task.of({**row, "environment": "e"}).message


async def verdict_on(
    mesh: Served, environment: Inspected, task_id: str
) -> rollout_pb2.Verification:
    task = task_of(environment, task_id)
    session = (await mesh.create(task)).session_id
    try:
        return await mesh.verify(session, task, [new_message("assistant", "I am.")])
    finally:
        await mesh.close(session)


def test_samples_are_rows(environment: Inspected) -> None:
    row = next(iter(environment.tasks()))
    prompt = {"input": [{"role": "user", "content": "Be right."}]}
    assert row == {"task_id": "right", "responses_create_params": prompt, "inspect": "right"}


async def test_the_reward_is_the_first_scorers(mesh: Served, environment: Inspected) -> None:
    right = await verdict_on(mesh, environment, "right")
    wrong = await verdict_on(mesh, environment, "wrong")
    assert (right.reward, wrong.reward) == (1.0, 0.0)
    assert [(part.name, part.value) for part in right.components] == [("match", 1.0)]
    assert right.explanation == "STOP_REASON_MODEL_FINISHED"
    scores = json.loads(right.evidence_json)["scores"]
    assert scores["match"]["value"] == "C"


async def test_the_samples_tools_are_offered(mesh: Served, environment: Inspected) -> None:
    session = await mesh.create(task_of(environment, "right"))
    assert [tool.function.name for tool in session.tools] == ["look", "submit"]
    seen = await mesh.call(session.session_id, "look")
    assert len(seen.parts.parts) == 2
    wrong = await mesh.call(session.session_id, "look", {"bad": True})
    assert (wrong.outcome, wrong.text) == (rollout_pb2.TOOL_OUTCOME_TOOL_ERROR, b"that is bad")
    done = await mesh.call(session.session_id, "submit")
    assert (done.text, done.done) == (b"seen", True)


@pytest.mark.parametrize(
    ("task_id", "problem"),
    [
        ("dies", "ended (status 9)"),
        ("garbage", "broke the protocol"),
        ("raises", "the scorer broke"),
    ],
)
async def test_a_fault_of_the_other_side_is_no_reward(
    mesh: Served, environment: Inspected, task_id: str, problem: str
) -> None:
    with pytest.raises(MeshError) as caught:
        await verdict_on(mesh, environment, task_id)
    assert caught.value.reason_name == "VERIFIER_FAULT"
    assert problem in str(caught.value)
    assert (await verdict_on(mesh, environment, "right")).reward == 1.0


async def test_a_verdict_that_hangs_is_given_up(environment: Inspected) -> None:
    async with served(environment, verify_timeout_s=0.5, turn_timeout_s=60) as mesh:
        with pytest.raises(MeshError) as caught:
            await verdict_on(mesh, environment, "hangs")
    assert caught.value.reason_name == "VERIFIER_TIMEOUT"


async def test_an_unscored_sample_is_skipped(mesh: Served, environment: Inspected) -> None:
    verdict = await verdict_on(mesh, environment, "unscored")
    assert verdict.status == rollout_pb2.VERIFICATION_STATUS_SKIPPED
    assert not verdict.HasField("reward")


async def test_a_refused_sample_names_its_problem(mesh: Served, environment: Inspected) -> None:
    with pytest.raises(MeshError, match="it has no choices") as caught:
        await mesh.create(task_of(environment, "refused"))
    assert caught.value.reason_name == "TASK_INVALID"
    unknown = rollout_pb2.Task(task_id="x", environment="e", payload_json=b'{"inspect": "x"}')
    with pytest.raises(
        MeshError, match="is 'x', which is not the id of a sample of the Inspect task"
    ):
        await mesh.create(unknown)


class JudgeModel:
    """A model service that answers each question alike, or fails."""

    def __init__(self, error: MeshError | None = None) -> None:
        self.error = error
        self.asked: list[Any] = []

    async def CreateResponse(self, request: Any, context: Any) -> Any:
        from gymmesh.model.v1 import model_pb2

        self.asked.append(request)
        if self.error is not None:
            raise self.error
        answer = model_pb2.CreateResponseResponse()
        answer.response.status = "completed"
        answer.response.output.append(new_message("assistant", "GRADE: C"))
        return answer


async def test_scorers_ask_the_judge_of_the_configuration() -> None:
    environment, judge = made(judge=True), JudgeModel()
    async with served(
        environment, model_services={"judge": judge}, verify_timeout_s=60, turn_timeout_s=60
    ) as mesh:
        verdict = await verdict_on(mesh, environment, "asks")
    assert verdict.explanation == "GRADE: C"
    assert len(judge.asked) == 1
    assert len(verdict.model_usage) == 1


async def test_only_an_own_solver_plays(environment: Inspected) -> None:
    assert not environment.plays
    own = made(solver="own")
    assert own.plays
    async with served(own, verify_timeout_s=60, turn_timeout_s=60) as mesh:
        task = task_of(own, "right")
        session_id = (await mesh.create(task)).session_id
        (session,) = own._open.values()
        with pytest.raises(MeshError) as caught:
            await own.play(session, ModelEndpoint("http://127.0.0.1:1/v1", "refused", "m"))
        assert caught.value.reason_name == "ENVIRONMENT_FAULT"
        assert "refused" not in str(caught.value)
        await own.play(session, ModelEndpoint("http://127.0.0.1:1/v1", "secret", "policy"))
        verdict = await mesh.verify(session_id, task, [new_message("assistant", "I am.")])
        assert verdict.explanation == "policy"


def test_a_missing_package_is_one_sentence() -> None:
    with pytest.raises(DefinitionError) as caught:
        list(made(args={"missing": True}).tasks())
    assert str(caught.value) == (
        f"The interpreter {sys.executable} lacks the package openai: run {sys.executable} -m pip "
        "install inspect-ai openai, or set the option 'python' to another interpreter."
    )


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"task: there is no file missing\.py"):
        InspectEnvironment(task="missing.py@sums")
