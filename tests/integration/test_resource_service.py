"""The resource service over gRPC: the math environment with its judges, and the first example."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_resource import EnvironmentConfig, ResourceService
from gymmesh_resource.service import RESOURCE_SERVICE, VERIFY_SERVICE
from gymmesh_responses import items_from_json, new_message
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serve import ServeOptions, serving

TIMEOUT = 60.0
# Seconds for judgements that take much processor time: a busy machine may be slow.
PATIENT = 900.0
SHOP = Path(__file__).parents[2] / "examples" / "first_environment" / "shop.py"
_ids = itertools.count()


class Remote:
    """An environment behind a port."""

    def __init__(self, resource: Any, verifier: Any) -> None:
        self.resource, self.verifier = resource, verifier

    async def create(self, task: rollout_pb2.Task) -> resource_pb2.CreateSessionResponse:
        request = resource_pb2.CreateSessionRequest(task=task, request_id=f"r{next(_ids)}")
        return await self.resource.CreateSession(request, timeout=TIMEOUT)  # type: ignore[no-any-return]

    async def call(self, session_id: str, name: str, arguments: bytes) -> bytes:
        request = resource_pb2.CallToolRequest(
            session_id=session_id, name=name, arguments=arguments, request_id=f"r{next(_ids)}"
        )
        return (await self.resource.CallTool(request, timeout=TIMEOUT)).text  # type: ignore[no-any-return]

    async def verify(
        self, session_id: str, task: rollout_pb2.Task, items: list[responses_pb2.Item]
    ) -> rollout_pb2.Verification:
        request = verify_pb2.VerifyRequest(
            session_id=session_id,
            task=task,
            transcript=items,
            stop_reason=rollout_pb2.STOP_REASON_MODEL_FINISHED,
        )
        return (await self.verifier.Verify(request, timeout=PATIENT)).verification  # type: ignore[no-any-return]


@asynccontextmanager
async def remote(name: str, **config: Any) -> AsyncIterator[Remote]:
    service = ResourceService(EnvironmentConfig(**config), name, f"{name}-0")
    async with serving(service, ServeOptions(metrics_port=None)) as served:
        directory = PeerDirectory()
        try:
            yield Remote(
                directory.peer(served.instance, RESOURCE_SERVICE),
                directory.peer(served.instance, VERIFY_SERVICE),
            )
        finally:
            await directory.close()


def _math_task(expected: object, task_id: str = "t") -> rollout_pb2.Task:
    payload = json.dumps({"expected_answer": expected}).encode()
    return rollout_pb2.Task(task_id=task_id, environment="math", payload_json=payload)


async def test_a_math_rollout_over_grpc() -> None:
    task = _math_task("42")
    async with remote("math", options={"judge_workers": 1}) as math:
        session = await math.create(task)
        result = await math.call(session.session_id, "calculator", b'{"expression": "6 * 7"}')
        told = await math.call(session.session_id, "calculator", b'{"expression": "6 / 0"}')
        right = await math.verify(session.session_id, task, [new_message("assistant", "It is 42.")])
        wrong = await math.verify("", task, [new_message("assistant", "\\boxed{41}")])
        empty = await math.verify("", task, [])
        number = await math.verify("", _math_task(1e-07), [new_message("assistant", "0.0000001")])
    assert [tool.function.name for tool in session.tools] == ["calculator"]
    assert result == b"42"
    assert b"zero" in told
    assert (right.reward, wrong.reward, empty.reward) == (1.0, 0.0, 0.0)
    assert number.reward == 1.0
    assert all(v.status == rollout_pb2.VERIFICATION_STATUS_VERIFIED for v in (right, wrong, empty))
    assert json.loads(wrong.evidence_json)["extracted_answer"] == "41"
    assert json.loads(empty.evidence_json)["answer_source"] == "none"
    assert [stage.name for stage in right.stages] == ["compare"]
    assert right.stages[0].duration_us > 0


@pytest.mark.parametrize("expected", [None, True, [], " ", "missing"])
async def test_a_task_without_an_answer_is_refused(expected: object) -> None:
    task = _math_task(expected)
    if expected == "missing":
        task.payload_json = b"{}"
    async with remote("math") as math:
        with pytest.raises(MeshError) as caught:
            await math.create(task)
    assert caught.value.reason == errors_pb2.ERROR_REASON_TASK_INVALID
    assert caught.value.metadata == {"task_id": "t", "field": "expected_answer"}


async def test_an_answer_that_takes_for_ever_is_worth_nothing_and_the_next_one_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gymmesh_resource.workers.answer_work.PATIENCE", PATIENT)
    endless = "\\boxed{\\int_0^1 x^{x^{x^x}} dx}"
    options = {"judge_workers": 1, "judge_timeout_s": 1.0}
    config = {"options": options, "verify_timeout_s": PATIENT, "compat": "nemo"}
    async with remote("math", **config) as math:
        await math.create(_math_task("1"))
        verdict = await math.verify("", _math_task("1"), [new_message("assistant", endless)])
        after = await math.verify("", _math_task("5"), [new_message("assistant", "5")])
    assert verdict.reward == 0.0
    assert verdict.status == rollout_pb2.VERIFICATION_STATUS_VERIFIED
    evidence = json.loads(verdict.evidence_json)
    assert evidence["failure_reason"] == "work on the answer exceeded the limit of processor time"
    assert after.reward == 1.0


async def test_an_expected_answer_that_takes_for_ever_is_the_tasks_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gymmesh_resource.workers.answer_work.PATIENCE", PATIENT)
    endless = "\\int_0^1 x^{x^{x^x}} dx"
    options = {"judge_workers": 1, "judge_timeout_s": 1.0}
    config = {"options": options, "verify_timeout_s": PATIENT, "compat": "nemo"}
    async with remote("math", **config) as math:
        with pytest.raises(MeshError) as caught:
            await math.verify("", _math_task(endless), [new_message("assistant", "\\boxed{1}")])
    assert caught.value.reason == errors_pb2.ERROR_REASON_TASK_INVALID
    assert caught.value.metadata["field"] == "expected_answer"


async def test_the_example_tasks_can_be_judged() -> None:
    async with remote("math", options={"judge_workers": 1}) as math:
        request = resource_pb2.ListTasksRequest()
        tasks = (await math.resource.ListTasks(request, timeout=TIMEOUT)).tasks
        for task in tasks:
            answer = json.loads(task.payload_json)["expected_answer"]
            said = [new_message("assistant", f"\\boxed{{{answer}}}")]
            assert (await math.verify("", task, said)).reward == 1.0, task.task_id
    assert len(tasks) >= 5
    assert len({task.task_id for task in tasks}) == len(tasks)


@pytest.mark.golden
@pytest.mark.timeout(PATIENT)
async def test_recorded_rewards_are_ours(golden_dir: Path) -> None:
    recorded = (golden_dir / "math_with_judge.example_rollouts.jsonl").read_text().splitlines()
    # One of them takes seconds of processor time, which a busy machine may take minutes to give.
    patient = {"options": {"judge_timeout_s": PATIENT}, "verify_timeout_s": PATIENT}
    async with remote("math", compat="nemo", **patient) as math:
        for number, line in enumerate(recorded):
            row = json.loads(line)
            items = items_from_json(row["response"]["output"])
            verification = await math.verify("", _math_task(row["expected_answer"]), items)
            assert verification.reward == row["library_reward"], f"row {number}"


async def test_the_first_environment_runs_side_by_side() -> None:
    async with remote("shop", use=f"{SHOP}:Shop") as shop:
        tasks = (
            await shop.resource.ListTasks(resource_pb2.ListTasksRequest(), timeout=TIMEOUT)
        ).tasks

        async def run(task: rollout_pb2.Task, wanted: dict[str, int]) -> float:
            session_id = (await shop.create(task)).session_id
            for item, count in wanted.items():
                arguments = json.dumps({"item": item, "count": count}).encode()
                await shop.call(session_id, "add", arguments)
            told = await shop.call(session_id, "add", b'{"item": "gold"}')
            assert told == b"We have no 'gold', only: apple, bread, tea."
            return (await shop.verify(session_id, task, [])).reward

        wanted = [{"apple": 2, "tea": 1}, {"bread": 2}]
        rewards = await asyncio.gather(*map(run, tasks, wanted))
    assert rewards == [1.0, 0.0]
    # What the README says of it.
    assert len(SHOP.read_text().splitlines()) < 30
