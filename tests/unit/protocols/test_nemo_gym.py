"""NeMo Gym's protocol: rows that are posted, tools by path, verdicts with their cookies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from gymmesh_resource import Environment, Rollout, Session, Task, tool
from gymmesh_resource.protocols.nemo_gym.documents import row_in, row_of
from gymmesh_runtime.config import ConfigError
from tests.unit.protocols.clients import said
from tests.unit.protocols.offered import ROWS, Offered, Office, offered

ROW: dict[str, Any] = {
    "responses_create_params": {"input": [{"role": "user", "content": "Say one."}]},
    "wanted": "one",
    "agent_ref": {"type": "responses_api_agents", "name": "office_agent"},
    "_ng_task_index": 3,
}


@asynccontextmanager
async def agent(desk: Offered) -> AsyncIterator[aiohttp.ClientSession]:
    """An agent's HTTP client for one rollout, with its cookies."""
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(base_url=desk.url, cookie_jar=jar) as http:
        yield http


async def post(http: aiohttp.ClientSession, path: str, body: Any) -> tuple[int, Any]:
    async with http.post(path, json=body) as reply:
        text = await reply.text()
        return reply.status, await reply.json() if reply.content_type.endswith("json") else text


def response(*output: Any, **more: Any) -> dict[str, Any]:
    return {"id": "r", "object": "response", "output": list(output), **more}


async def test_a_rollout() -> None:
    async with offered(Office()) as desk, agent(desk) as http:
        assert await post(http, "/seed_session", ROW) == (200, {})
        assert desk.open_sessions == 1
        assert await post(http, "/note", {"text": "x"}) == (200, 1)
        assert await post(http, "/refuse", {}) == (400, "Not on a Sunday.")
        status, text = await post(http, "/note", {"number": 1})
        assert status == 422
        assert "note" in text
        status, text = await post(http, "/fly", {})
        assert (status, "There is no tool 'fly'" in text) == (404, True)
        body = {**ROW, "response": response(said("one"))}
        status, verdict = await post(http, "/verify", body)
        assert status == 200
        assert verdict == {
            **body, "notes": 1.0, "reward_components": {"notes": 1.0}, "reward": 1.0,
        }  # fmt: skip
        assert desk.open_sessions == 0
        assert await post(http, "/verify", body) == (200, verdict)  # sent again


async def test_a_tool_that_ends_the_episode() -> None:
    async with offered(Office()) as desk, agent(desk) as http:
        await post(http, "/seed_session", ROW)
        await post(http, "/note", {"text": "one"})
        assert await post(http, "/leave", {}) == (200, "bye")
        assert (await post(http, "/note", {"text": "x"}))[0] == 409
        body = {**ROW, "response": response(said("x"))}
        assert (await post(http, "/verify", body))[1]["reward"] == 1.0


@pytest.mark.parametrize("name", ["break_down", "picture"])
async def test_what_a_model_must_not_be_rewarded_for(name: str) -> None:
    async with offered(Office()) as desk, agent(desk) as http:
        await post(http, "/seed_session", ROW)
        status, told = await post(http, f"/{name}", {})
        assert status >= 500
        assert "secret" not in told["detail"]
        status, verdict = await post(http, "/verify", {**ROW, "response": response(said("one"))})
        assert (status, verdict["reason"]) == (500, told["reason"])
        assert "reward" not in verdict
        assert desk.open_sessions == 0


async def test_not_judged_is_not_zero() -> None:
    async with offered(Office()) as desk, agent(desk) as http:
        row = {**ROW, "wanted": ""}
        await post(http, "/seed_session", row)
        status, verdict = await post(http, "/verify", {**row, "response": response()})
        assert (status, verdict["reason"]) == (500, "VERIFIER_FAULT")


async def test_requests_that_are_wrong() -> None:
    async with offered(Office()) as desk, agent(desk) as http:
        assert (await post(http, "/note", {}))[0] == 404  # no session
        assert (await post(http, "/seed_session", {"a": 1}))[0] == 422
        served = {"resources_session_id": "a", "episode_id": "b", "task_id": "c", "task_data": {}}
        status, told = await post(http, "/seed_session", served)
        assert (status, "Environment Server" in told["detail"]) == (422, True)
        tools = [{"type": "function", "name": "verify", "parameters": {}}]
        row = {**ROW, "responses_create_params": {"input": "x", "tools": tools}}
        assert (await post(http, "/seed_session", row))[0] == 200  # this one answers no such tools
        assert (await post(http, "/verify", ROW))[0] == 422  # no response
        body = {**ROW, "response": response()}
        http.cookie_jar.clear()
        # Judged by a session's state, which is not there.
        assert (await post(http, "/verify", body))[0] == 404


class Plain(Environment[None]):
    """Compares."""

    examples = ROWS

    def verify(self, session: Session[None], rollout: Rollout) -> float:
        return float(rollout.answer == rollout.task.payload["wanted"])


async def test_a_verdict_that_needs_no_session() -> None:
    async with offered(Plain()) as desk, agent(desk) as http:
        body = {**ROW, "response": response(said("one"))}
        assert (await post(http, "/verify", body))[1]["reward"] == 1.0
        cut = response(said("on"), incomplete_details={"reason": "max_output_tokens"})
        assert (await post(http, "/verify", {**ROW, "response": cut}))[1]["reward"] == 0.0


async def test_two_agents_at_once() -> None:
    async with offered(Office()) as desk, agent(desk) as one, agent(desk) as other:
        await post(one, "/seed_session", ROW)
        await post(other, "/seed_session", ROW)
        await post(one, "/note", {"text": "one"})
        body = {**ROW, "response": response(said("x"))}
        verdicts = await asyncio.gather(post(one, "/verify", body), post(other, "/verify", body))
        assert [verdict["reward"] for _, verdict in verdicts] == [1.0, 0.0]


async def test_rows_to_run() -> None:
    async with offered(Office()) as desk:
        rows = await desk.nemo_gym.rows()
        assert [row["wanted"] for row in rows] == ["one", "two", ""]
        tools = rows[0]["responses_create_params"]["tools"]
        assert {"note", "leave"} < {tool["name"] for tool in tools}
        assert all(one["type"] == "function" and "strict" in one for one in tools)


async def test_rows_have_what_its_servers_want_and_lose_what_its_agents_add() -> None:
    params = {"input": "x", "tools": [{"type": "function", "name": "own"}], "background": None}
    row = {"responses_create_params": params, "wanted": "x", "extra": None}
    task = Task.of(row_in(row)).message
    written = row_of(task, ())["responses_create_params"]
    assert written == {
        "input": "x",
        "tools": [{"strict": False, "parameters": {}, "type": "function", "name": "own"}],
    }


async def test_figures_of_a_run() -> None:
    async with offered(Office()) as desk, agent(desk) as http:
        body = {"verify_responses": [{"reward": 1.0}, {"reward": 0}, {}]}
        told = (await post(http, "/aggregate_metrics", body))[1]
        assert told["agent_metrics"] == {"mean/reward": 0.5}


class Clashing(Plain):
    @tool
    def verify_it(self) -> str:
        """Fine."""
        return ""

    @tool
    def step(self) -> str:
        """A path of OpenEnv's."""
        return ""


async def test_a_tool_with_the_name_of_a_path_is_refused() -> None:
    with pytest.raises(ConfigError, match="the tool 'step' has the name of one of the server's"):
        async with offered(Clashing(), ["openenv", "nemo_gym"]):
            pass
    async with offered(Clashing(), ["nemo_gym"]) as desk, agent(desk) as http:
        await post(http, "/seed_session", ROW)
        assert (await post(http, "/step", {}))[0] == 200
