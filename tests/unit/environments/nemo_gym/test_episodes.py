"""Episodes that a server's `/run` plays and judges, with the policy behind our model server."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.environments.nemo_gym import NemoGymEnvironment
from gymmesh_responses import new_message, params_from_json
from gymmesh_runtime.errors import MeshError
from tests.unit.environments.nemo_gym.nemo_server import serving
from tests.unit.resource.served import TIMEOUT, Served, served

KEY = "key-0123456789"
SAID = {"object": "response", "output": [{"type": "message", "role": "assistant", "content": "4"}]}


def row(**payload: Any) -> rollout_pb2.Task:
    params = {"input": "2 + 2?", "metadata": {"mine": "kept"}}
    return rollout_pb2.Task(
        task_id="t-7",
        environment="e",
        params=params_from_json(params),
        payload_json=json.dumps(payload).encode(),
    )


class Runner:
    """An agent server: asks its model once, and answers as told. `calls`: how it asks."""

    def __init__(self, model: str, answer: Any = None, *, by_path: bool = False) -> None:
        self.model = model
        self.answer = {"reward": 0.5, "_ng_rollout_id": "x"} if answer is None else answer
        self.by_path = by_path
        self.bodies: list[Any] = []
        self.model_status = 0
        self.model_said: Any = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.app = web.Application()
        self.app.router.add_post("/run", self._run)

    async def _run(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        task = body.get("task", {}).get("task_input", body)
        params = dict(task["responses_create_params"])
        episode = body.get("_ng_rollout_id") or body["episode_id"]["rollout_id"]
        prefix = f"/ng-rollout/{episode}" if self.by_path else ""
        if self.by_path:
            del params["metadata"]
        async with aiohttp.ClientSession() as http:
            url = f"http://{self.model}{prefix}/v1/responses"
            async with http.post(url, json=params) as reply:
                self.model_status, self.model_said = reply.status, await reply.json()
        await self.gate.wait()
        if isinstance(self.answer, int):
            return web.Response(status=self.answer)
        return web.json_response(self.answer)


class Policy:
    """The rollout's endpoint."""

    def __init__(self, status: int = 200, answer: Any = SAID) -> None:
        self.status, self.answer = status, answer
        self.bodies: list[Any] = []
        self.app = web.Application()
        self.app.router.add_post("/v1/responses", self._answer)

    async def _answer(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == f"Bearer {KEY}"
        self.bodies.append(await request.json())
        return web.json_response(self.answer, status=self.status)


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


@asynccontextmanager
async def running(runner: Runner, **options: Any) -> AsyncIterator[Served]:
    async with serving(runner.app) as url:
        environment = NemoGymEnvironment(
            url=url, protocol="run", model_server=runner.model, **options
        )
        async with served(environment) as mesh:
            yield mesh


async def play(mesh: Served, session_id: str, policy: Policy, timeout: float = TIMEOUT) -> None:
    async with serving(policy.app) as url:
        endpoint = resource_pb2.ModelEndpoint(base_url=f"{url}/v1", key=KEY, model="policy")
        request = resource_pb2.PlayEpisodeRequest(session_id=session_id, endpoint=endpoint)
        await mesh.resource.PlayEpisode(request, timeout=timeout)


async def fails(awaited: Any) -> str:
    with pytest.raises(MeshError) as caught:
        await awaited
    assert KEY not in str(caught.value)
    return caught.value.reason_name


ANSWER = [new_message("assistant", "4")]


@pytest.mark.parametrize("by_path", [False, True])
async def test_the_policy_answers_and_the_server_judges(by_path: bool) -> None:
    runner, policy = Runner(free_address(), by_path=by_path), Policy()
    async with running(runner) as mesh:
        task = row(expected=4)
        session = (await mesh.create(task)).session_id
        await play(mesh, session, policy)
        verdict = await mesh.verify(session, task, ANSWER)
    assert verdict.reward == 0.5
    assert runner.model_said == SAID
    assert runner.bodies[0]["expected"] == 4
    (asked,) = policy.bodies
    assert asked["model"] == "policy"
    assert asked.get("metadata", {"mine": "kept"}) == {"mine": "kept"}
    assert runner.bodies[0]["_ng_rollout_id"].encode() not in verdict.evidence_json


async def test_typed_episodes_have_the_task_and_the_result_apart() -> None:
    answer = {"episode_id": {}, "task_id": {}, "result": {"reward": 1.0}, "failure": None}
    runner = Runner(free_address(), answer)
    async with running(runner, taskset="sums") as mesh:
        task = row(expected=4)
        session = (await mesh.create(task)).session_id
        await play(mesh, session, Policy())
        assert (await mesh.verify(session, task, ANSWER)).reward == 1.0
    (body,) = runner.bodies
    assert body["task"]["task_id"] == {"taskset": "sums", "task_id": "t-7"}
    assert body["task"]["task_input"]["task_data"]["expected"] == 4
    assert body["episode_id"]["attempt"] == 0


@pytest.mark.parametrize(
    "answer",
    [
        500,
        {"failure": {"failure_reason": "it broke", "stage": "seed", "terminal": False}},
        {"_ng_failure_class": "environment_server_failed", "_ng_failure_message": "it broke"},
        [],
    ],
)
async def test_an_episode_that_failed_is_a_fault_without_a_reward(answer: Any) -> None:
    async with running(Runner(free_address(), answer)) as mesh:
        session = (await mesh.create(row())).session_id
        assert await fails(play(mesh, session, Policy())) == "ENVIRONMENT_FAULT"
        assert await fails(mesh.verify(session, row(), ANSWER)) == "VERIFIER_FAULT"


@pytest.mark.parametrize(
    "answer",
    [{}, {"reward": None}, {"reward": 1.0, "mask_sample": True, "failure_kind": "judge_down"}],
)
async def test_an_answer_that_is_no_verdict_is_a_fault(answer: Any) -> None:
    async with running(Runner(free_address(), answer)) as mesh:
        session = (await mesh.create(row())).session_id
        await play(mesh, session, Policy())
        assert await fails(mesh.verify(session, row(), ANSWER)) == "VERIFIER_FAULT"


async def test_an_agent_that_skips_the_verification_is_not_judged() -> None:
    answer = {"reward": 0.0, "verification_skipped": True}
    async with running(Runner(free_address(), answer)) as mesh:
        session = (await mesh.create(row())).session_id
        await play(mesh, session, Policy())
        verdict = await mesh.verify(session, row(), ANSWER)
    assert verdict.status == rollout_pb2.VERIFICATION_STATUS_SKIPPED
    assert not verdict.HasField("reward")


@pytest.mark.parametrize("code", ["rollout_over", "context_length_exceeded"])
async def test_a_limit_of_the_policy_is_an_incomplete_answer(code: str) -> None:
    runner, policy = Runner(free_address()), Policy(400, {"error": {"code": code}})
    async with running(runner) as mesh:
        session = (await mesh.create(row())).session_id
        await play(mesh, session, policy)
    assert runner.model_status == 200
    assert (runner.model_said["status"], runner.model_said["output"]) == ("incomplete", [])


@pytest.mark.parametrize(("status", "code"), [(400, "invalid_request"), (503, "server_error")])
async def test_other_errors_of_the_policy_reach_the_server(status: int, code: str) -> None:
    runner, policy = Runner(free_address()), Policy(status, {"error": {"code": code}})
    async with running(runner) as mesh:
        session = (await mesh.create(row())).session_id
        await play(mesh, session, policy)
    assert runner.model_status == status


async def test_calls_of_no_episode_are_refused() -> None:
    runner = Runner(free_address())
    async with running(runner) as mesh, aiohttp.ClientSession() as http:
        session = (await mesh.create(row())).session_id
        await play(mesh, session, Policy())
        ended = runner.bodies[0]["_ng_rollout_id"]
        for path, body in (
            ("/v1/responses", {"input": "hello"}),
            (f"/ng-rollout/{ended}/v1/responses", {"input": "hello"}),
            ("/v1/responses", {"input": "hello", "metadata": {"gymmesh_episode": ended}}),
            ("/v1/models", {}),
            ("/ng-rollout/../v1/responses", {}),
        ):
            async with http.post(f"http://{runner.model}{path}", json=body) as reply:
                assert reply.status == 404
        async with http.post(f"http://{runner.model}/v1/responses", data=b"[1") as reply:
            assert reply.status == 400


async def test_an_episode_whose_time_is_up_has_no_verdict() -> None:
    runner = Runner(free_address())
    runner.gate.clear()
    async with running(runner) as mesh:
        session = (await mesh.create(row())).session_id
        assert await fails(play(mesh, session, Policy(), timeout=5.0)) == "DEADLINE_PASSED"
        assert await fails(mesh.verify(session, row(), ANSWER)) == "VERIFIER_FAULT"
        runner.gate.set()


async def test_under_another_agent_the_verdict_says_what_is_wrong() -> None:
    async with running(Runner(free_address())) as mesh:
        session = (await mesh.create(row())).session_id
        with pytest.raises(MeshError, match="program: environment"):
            await mesh.verify(session, row(), ANSWER)


@pytest.mark.parametrize(
    "options",
    [
        {"protocol": "run"},
        {"protocol": "run", "model_server": "nowhere"},
        {"protocol": "run", "model_server": "127.0.0.1:0"},
        {"model_server": "127.0.0.1:80"},
        {"taskset": "a"},
        {"protocol": "steps", "close_path": "/x"},
    ],
)
def test_options_that_do_not_go_together_are_refused(options: Any) -> None:
    with pytest.raises(ValueError, match=r"model_server|taskset|close_path"):
        NemoGymEnvironment(url="http://127.0.0.1:1", **options)
