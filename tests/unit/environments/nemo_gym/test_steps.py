"""Step servers: turns whose rewards add up, episodes that are played, and answers that are none."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_resource.environments.nemo_gym import NemoGymEnvironment
from gymmesh_responses import item_from_json, new_message, params_from_json
from gymmesh_runtime.errors import MeshError
from tests.unit.environments.nemo_gym.nemo_server import NemoServer, serving
from tests.unit.resource.served import TIMEOUT, Served, served

CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}", "id": "f1"}


def say(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "m1", "role": "assistant", "content": content}


class Counting(NemoServer):
    """Takes `steps` steps, each of which is worth its number; says so. `spoil`: what to answer."""

    def __init__(self, steps: int = 2, spoil: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.steps = steps
        self.spoil = spoil or {}
        self.taken: dict[str, int] = {}

    def tools(self) -> dict[str, Callable[[str, Any], Any]]:
        return {"reset": self._reset, "step": self._step, "close": lambda session, body: {}}

    def _reset(self, session: str, body: Any) -> Any:
        self.taken[session] = 0
        return {"observation": "Go.", "info": body.get("info", {})} | self.spoil.get("reset", {})

    def _step(self, session: str, body: Any) -> Any:
        number = self.taken[session] = self.taken[session] + 1
        calls = [one for one in body["response"]["output"] if one["type"] == "function_call"]
        outputs = [{"call_id": one["call_id"], "output": "seen"} for one in calls]
        over = number >= self.steps
        answer = {
            "observation": None if over or calls else f"{number} done.",
            "reward": float(number),
            "terminated": over,
            "truncated": False,
            "info": {"tool_outputs": outputs, "number": number},
        } | self.spoil.get("step", {})
        return {key: value for key, value in answer.items() if value != "left out"}

    def bodies(self, path: str) -> list[Any]:
        return [body for asked, body in self.requests if asked == path]


def row(**payload: Any) -> rollout_pb2.Task:
    return rollout_pb2.Task(
        task_id="t",
        environment="e",
        params=params_from_json({"input": [{"role": "user", "content": "Count."}]}),
        payload_json=json.dumps(payload).encode(),
    )


@asynccontextmanager
async def stepping(server: NemoServer, **config: Any) -> AsyncIterator[Served]:
    async with serving(server.app) as url:
        environment = NemoGymEnvironment(url=url, protocol="steps")
        async with served(environment, **config) as mesh:
            yield mesh


async def fails(awaited: Any) -> str:
    with pytest.raises(MeshError) as caught:
        await awaited
    return caught.value.reason_name


@asynccontextmanager
async def policy(*answers: Any) -> AsyncIterator[str]:
    """A Responses endpoint: a list is an output, an error code is refused with 400, a number is a
    status.
    """
    left = list(answers)

    async def answer(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer key-0123456789"
        given = left.pop(0)
        if isinstance(given, int):
            return web.Response(status=given)
        if isinstance(given, str):
            return web.json_response({"error": {"code": given}}, status=400)
        return web.json_response({"object": "response", "output": given})

    app = web.Application()
    app.router.add_post("/v1/responses", answer)
    async with serving(app) as url:
        yield f"{url}/v1"


async def play(mesh: Served, session_id: str, base_url: str) -> None:
    endpoint = resource_pb2.ModelEndpoint(base_url=base_url, key="key-0123456789", model="policy")
    request = resource_pb2.PlayEpisodeRequest(session_id=session_id, endpoint=endpoint)
    await mesh.resource.PlayEpisode(request, timeout=TIMEOUT)


async def test_turns_are_steps_and_their_rewards_add_up() -> None:
    server = Counting()
    async with stepping(server) as mesh:
        about = await mesh.resource.GetEnvironment(
            resource_pb2.GetEnvironmentRequest(), timeout=TIMEOUT
        )
        assert (about.multi_turn, about.plays) == (True, True)
        task = row(level=3)
        opened = await mesh.create(task)
        assert opened.items[0].message.text == "Go."
        first = await mesh.turn(opened.session_id, [new_message("assistant", "one")])
        assert (first.reward, first.done) == (1.0, False)
        assert first.items[0].message.text == "1 done."
        second = await mesh.turn(opened.session_id, [new_message("assistant", "two")])
        assert (second.reward, second.done, len(second.items)) == (2.0, True, 0)
        said = [new_message("assistant", "one"), *first.items, new_message("assistant", "two")]
        verdict = await mesh.verify(opened.session_id, task, said)
    assert verdict.reward == 3.0
    evidence = json.loads(verdict.evidence_json)
    assert (evidence["steps"], evidence["terminated"], evidence["truncated"]) == (2, True, False)
    assert server.bodies("/reset")[0]["level"] == server.bodies("/step")[0]["level"] == 3
    (output,) = server.bodies("/step")[1]["response"]["output"]
    assert output["content"][0]["text"] == "two"
    assert len(set(server.sessions)) == 1


async def test_an_answer_that_was_cut_short_is_a_step_of_the_verdict() -> None:
    server = Counting(steps=9)
    async with stepping(server) as mesh:
        task = row()
        session = (await mesh.create(task)).session_id
        first = await mesh.turn(session, [new_message("assistant", "one")])
        said = [new_message("assistant", "one"), *first.items, new_message("assistant", "tw")]
        request = verify_pb2.VerifyRequest(
            session_id=session,
            task=task,
            transcript=said,
            stop_reason=rollout_pb2.STOP_REASON_MAX_OUTPUT_TOKENS,
        )
        verdict = (await mesh.verifier.Verify(request, timeout=TIMEOUT)).verification
    assert verdict.reward == 3.0
    cut = server.bodies("/step")[1]["response"]
    assert (cut["status"], len(cut["output"])) == ("incomplete", 1)
    assert json.loads(verdict.evidence_json)["truncated"] is True


async def test_a_rollout_without_a_step_has_no_verdict() -> None:
    async with stepping(Counting()) as mesh:
        session = (await mesh.create(row())).session_id
        assert await fails(mesh.verify(session, row())) == "VERIFIER_FAULT"


async def test_what_a_server_can_do_more_is_used() -> None:
    server = Counting()
    able = {"supports_explicit_close": True, "supports_step_idempotency": True}
    async with stepping(server) as mesh:
        session = (await mesh.create(row(info=able))).session_id
        await mesh.turn(session, [new_message("assistant", "one")])
        await mesh.close(session)
    assert server.bodies("/step")[0]["_ng_step_request_id"]
    assert server.bodies("/close") == [{}]


@pytest.mark.parametrize(
    "spoiled",
    [
        {"reward": "left out"},
        {"reward": None},
        {"reward": "1.0"},
        {"reward": True},
        {"terminated": "left out"},
        {"truncated": None},
        {"observation": 7},
        {"observation": None},
        {"info": []},
    ],
)
async def test_an_answer_that_is_no_step_is_a_fault_and_no_reward(spoiled: Any) -> None:
    server = Counting(steps=9, spoil={"step": spoiled})
    async with stepping(server) as mesh:
        session = (await mesh.create(row())).session_id
        said = [new_message("assistant", "one")]
        assert await fails(mesh.turn(session, said)) == "ENVIRONMENT_FAULT"


@pytest.mark.parametrize("spoiled", [{"observation": 7}, {"info": None}])
async def test_an_answer_that_is_no_reset_is_a_fault(spoiled: Any) -> None:
    async with stepping(Counting(spoil={"reset": spoiled})) as mesh:
        assert await fails(mesh.create(row())) == "ENVIRONMENT_FAULT"


async def test_it_plays_an_episode_with_tools() -> None:
    server = Counting(steps=3)
    look_twice = [CALL, CALL | {"call_id": "c2", "id": "f2"}]
    async with stepping(server) as mesh, policy(look_twice, [say("a")], [say("b")]) as url:
        task = row()
        session = (await mesh.create(task)).session_id
        await play(mesh, session, url)
        verdict = await mesh.verify(session, task, [item_from_json(say("b"))])
    assert verdict.reward == 6.0
    assert len(server.bodies("/step")) == 3
    assert len(server.bodies("/step")[0]["response"]["output"]) == 2


@pytest.mark.parametrize("code", ["rollout_over", "context_length_exceeded"])
async def test_a_limit_of_the_policy_ends_the_episode_that_it_plays(code: str) -> None:
    async with stepping(Counting(steps=9)) as mesh, policy([say("a")], code) as url:
        session = (await mesh.create(row())).session_id
        await play(mesh, session, url)
        verdict = await mesh.verify(session, row(), [item_from_json(say("a"))])
    assert verdict.reward == 1.0


@pytest.mark.parametrize("answer", [500, "invalid_request", {"not": "a list"}])
async def test_a_model_that_fails_fails_the_episode(answer: Any) -> None:
    async with stepping(Counting(steps=9)) as mesh, policy([say("a")], answer) as url:
        session = (await mesh.create(row())).session_id
        assert await fails(play(mesh, session, url)) == "ENVIRONMENT_FAULT"


async def test_tools_under_another_agent_are_refused() -> None:
    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
    task = row()
    task.params.CopyFrom(params_from_json({"input": "Count.", "tools": [tool]}))
    async with stepping(Counting()) as mesh:
        session = (await mesh.create(task)).session_id
        assert await fails(mesh.call(session, "look")) == "TASK_INVALID"
