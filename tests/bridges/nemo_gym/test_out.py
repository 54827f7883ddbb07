"""Every environment of the shelf that takes no turns, driven by NeMo Gym's own simple agent.

The agent's resources server is our environment; its model's endpoint is here, and says what the
play says.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from tests.support.ports import free_port
from tests.support.shelf import SHELF, Play, shelved
from tests.unit.protocols.clients import NemoGymClient, said

_HOST: Final = "127.0.0.1"
_START_S: Final = 900.0
_TURNS: Final = ("game", "user_simulator")


@dataclass
class Actor:
    """The model's endpoint: the calls of the play one after another, then its message."""

    play: Play | None = None
    asked: int = 0
    seen: list[Any] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        assert self.play is not None
        body = await request.json()
        self.asked += 1
        self.seen = [one for one in body["input"] if one.get("type") == "function_call_output"]
        calls = self.play.calls
        number = len(self.seen)
        item = said(self.play.message)
        if number < len(calls):
            name, arguments = calls[number]
            item = {
                "type": "function_call",
                "id": f"fc_{number}",
                "call_id": f"call_{number}",
                "name": name,
                "arguments": json.dumps(dict(arguments)),
                "status": "completed",
            }
        return web.json_response(
            {
                "id": f"resp_{self.asked}",
                "object": "response",
                "created_at": 1,
                "model": "policy",
                "status": "completed",
                "incomplete_details": None,
                "error": None,
                "output": [{"status": "completed", **item}],
                "parallel_tool_calls": True,
                "tool_choice": "auto",
                "tools": [],
                "usage": {
                    "input_tokens": 5,
                    "output_tokens": 3,
                    "total_tokens": 8,
                    "input_tokens_details": {"cached_tokens": 0},
                    "output_tokens_details": {"reasoning_tokens": 0},
                },
            }
        )


@dataclass
class Agent:
    """NeMo Gym's agent server; `port` is where it looks for its resources server."""

    url: str
    port: int
    actor: Actor

    async def run(self, row: dict[str, Any], play: Play) -> tuple[int, Any]:
        self.actor.play = play
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{self.url}/run", json=row) as reply,
        ):
            text = await reply.text()
            return reply.status, json.loads(text)


def configuration(ports: dict[str, int], model_url: str) -> dict[str, Any]:
    """NeMo Gym's: an agent with a model and with our environment as its resources server."""

    def served(kind: str, folder: str, name: str, **more: Any) -> dict[str, Any]:
        return {kind: {folder: {"host": _HOST, "port": ports[name], **more}}}

    return {
        "model": served(
            "responses_api_models",
            "openai_model",
            "model",
            entrypoint="app.py",
            openai_base_url=model_url,
            openai_api_key="none",
            openai_model="policy",
        ),
        "office": served(
            "resources_servers",
            "example_session_state_mgmt",
            "office",
            entrypoint="app.py",
            domain="other",
        ),
        "agent": served(
            "responses_api_agents",
            "simple_agent",
            "agent",
            entrypoint="app.py",
            resources_server={"type": "resources_servers", "name": "office"},
            model_server={"type": "responses_api_models", "name": "model"},
        ),
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def agent(
    bridge_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Agent]:
    folder = tmp_path_factory.mktemp("agent")
    actor = Actor()
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/v1/responses", actor.answer)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, _HOST, 0).start()
    taken: set[int] = set()
    ports = {name: free_port(taken=taken) for name in ("model", "office", "agent")}
    config = configuration(ports, f"http://{_HOST}:{runner.addresses[0][1]}/v1")
    with (folder / "servers.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            bridge_python,
            Path(__file__).with_name("nemo_servers.py"),
            json.dumps(config),
            folder / "words.txt",
            "office",
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": "", "HF_HUB_OFFLINE": "1"},
            start_new_session=True,
        )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START_S):
            while (line := await process.stdout.readline()).strip() != b"ready":
                assert line, (folder / "servers.log").read_text()[-2000:]
        yield Agent(f"http://{_HOST}:{ports['agent']}", ports["office"], actor)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await runner.cleanup()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", [name for name in SHELF if name not in _TURNS])
async def test_verdicts_are_the_environments_own(name: str, agent: Agent, tmp_path: Path) -> None:
    async with shelved(name, ["nemo_gym"], tmp_path, port=agent.port) as shelf:
        rows = {row["task_id"]: row for row in await NemoGymClient(shelf.url).rows()}
        for play in await shelf.plays(100):
            reward = await shelf.worth(play)
            shelf.model.attack = play.attack
            status, result = await agent.run(rows[play.task_id], play)
            assert status == 200, result
            assert result["reward"] == reward, play
            assert len(agent.actor.seen) == len(play.calls)
        assert not len(shelf.service.sessions)


@pytest.mark.asyncio(loop_scope="module")
async def test_no_verdict_is_a_failed_run(agent: Agent, tmp_path: Path) -> None:
    async with shelved("llm_judge", ["nemo_gym"], tmp_path, port=agent.port) as shelf:
        rows = {row["task_id"]: row for row in await NemoGymClient(shelf.url).rows()}
        play = next(one for one in await shelf.plays(1) if one.wins)
        shelf.model.broken = True
        status, result = await agent.run(rows[play.task_id], play)
        assert status == 500
        assert "reward" not in json.dumps(result)


@pytest.mark.asyncio(loop_scope="module")
async def test_two_runs_at_once(agent: Agent, tmp_path: Path) -> None:
    async with shelved("math", ["nemo_gym"], tmp_path, port=agent.port) as shelf:
        play = next(one for one in await shelf.plays(1) if one.wins)
        row = next(
            row for row in await NemoGymClient(shelf.url).rows() if row["task_id"] == play.task_id
        )
        other = {**row, "expected_answer": 1}
        runs = await asyncio.gather(agent.run(row, play), agent.run(other, play))
        assert [result["reward"] for _, result in runs] == [1.0, 0.0]
