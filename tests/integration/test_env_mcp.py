"""gym-cli env mcp: an outside agent, the mcp package's own client, works in a session of ours."""

from __future__ import annotations

import asyncio
import json
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import require
from tests.support.cli import start
from tests.unit.environments.mcp.test_mcp_server import connected, status, text

require(find_spec("mcp"), "the mcp package", "pip install 'gymmesh[mcp]'")

COUNTER = '''
from dataclasses import dataclass
from gymmesh_resource import Environment, Session, Verdict, tool

@dataclass
class Count:
    value: int = 0

class Counter(Environment[Count]):
    """Counts."""
    state = Count
    examples = "tasks.jsonl"

    @tool
    def add(self, session: Session[Count], by: int) -> int:
        """Add to the count."""
        session.state.value += by
        return session.state.value

    @tool
    def stop(self, session: Session[Count]) -> str:
        """End it."""
        session.finish()
        return "stopped"

    def verify(self, session, rollout):
        wanted = rollout.task.require("wanted", int)
        right = float(session.state.value == wanted)
        said = float(rollout.answer.strip() == str(wanted))
        calls = float(len(rollout.tool_calls))
        return Verdict(right, {"calls": calls, "said": said})
'''
TASKS = [
    {"task_id": "five", "responses_create_params": {"input": "Count to 5."}, "wanted": 5},
    {"task_id": "seven", "responses_create_params": {"input": "Count to 7."}, "wanted": 7},
]
MESH = """
models: {policy: {backend: replay, path: recorded.jsonl}}
environments: {desk: {use: "counter.py:Counter", mcp: {}}, plain: {use: "counter.py:Counter"}}
defaults: {environment: desk}
mesh: {drain_s: 1}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "counter.py").write_text(COUNTER)
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in TASKS))
    (tmp_path / "recorded.jsonl").write_text('{"match": "*", "answers": [{"text": "4"}]}\n')
    (tmp_path / "mesh.yaml").write_text(MESH)
    return tmp_path


@asynccontextmanager
async def gym(folder: Path, *arguments: str) -> AsyncIterator[Process]:
    process = await start(*arguments, cwd=folder)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def first_line(process: Process) -> Any:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        line = await process.stdout.readline()
        if not line:
            _, errors = await process.communicate()
            raise AssertionError(errors.decode())
    return json.loads(line)


async def end(process: Process, number: int | None = signal.SIGINT) -> tuple[int, str, str]:
    """The exit code, the rest of stdout, and stderr; the process is sent a signal unless None."""
    if number is not None:
        process.send_signal(number)
    async with asyncio.timeout(60):
        out, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), errors.decode()


async def add_up(session: dict[str, Any], *numbers: int) -> None:
    async with connected(session["url"], session["token"]) as client:
        assert {one.name for one in (await client.list_tools()).tools} == {"add", "stop"}
        for number in numbers:
            await client.call_tool("add", {"by": number})


async def test_a_session_until_ctrl_c_and_its_verdict(folder: Path) -> None:
    (folder / "answer.txt").write_text("7\n")
    asked = ["--tasks", "tasks.jsonl", "--task-id", "seven", "--verify", "--answer", "answer.txt"]
    place = "environments={desk: {use: 'counter.py:Counter'}}"
    async with gym(folder, "env", "mcp", "desk", "--set", place, *asked, "--json") as process:
        session = await first_line(process)
        assert (session["environment"], session["task_id"]) == ("desk", "seven")
        assert session["tools"] == ["add", "stop"]
        assert session["input"] == "Count to 7."
        await add_up(session, 3, 4)
        code, out, errors = await end(process)
    assert (code, errors) == (0, "")
    verdict = json.loads(out)["verification"]
    parts = {one["name"]: one["value"] for one in verdict["components"]}
    assert (verdict["reward"], parts) == (1.0, {"calls": 2.0, "said": 1.0})
    assert session["token"] not in out


async def test_the_end_of_the_episode_ends_the_command(folder: Path) -> None:
    arguments = ["env", "mcp", "desk", "--config", "mesh.yaml", "--verify"]
    async with gym(folder, *arguments) as process:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            lines = [(await process.stdout.readline()).decode().split() for _ in range(4)]
        assert lines[0][-4:] == ["session", "for", "task", "five"]
        (_, url), (_, token) = lines[1], lines[2]
        async with connected(url, token) as client:
            assert text(await client.call_tool("add", {"by": 5})) == "5"
            await client.call_tool("stop", {})
        code, out, errors = await end(process, None)
    assert code == 0
    assert "reward 1  (calls 2, said 0)" in out
    assert errors == "Press Ctrl-C to end the session.\n"


async def test_a_session_of_a_mesh_that_runs(folder: Path) -> None:
    async with gym(folder, "up", "--config", "mesh.yaml", "--logs", "--json") as mesh:
        services = {one["name"]: one for one in await first_line(mesh)}
        assert services["desk"]["mcp_url"].startswith("http://127.0.0.1:")
        assert "mcp_url" not in services["plain"]
        at = services["registry"]["address"]
        asked = ["env", "mcp", "desk", "--registry", at, "--verify", "--json"]
        async with gym(folder, *asked) as one, gym(folder, *asked, "--task-id", "seven") as two:
            sessions = [await first_line(one), await first_line(two)]
            assert [session["task_id"] for session in sessions] == ["five", "seven"]
            assert {session["url"] for session in sessions} == {services["desk"]["mcp_url"]}
            await add_up(sessions[0], 5)
            await add_up(sessions[1], 1, 1)
            ends = [await end(one, signal.SIGTERM), await end(two)]
        rewards = []
        for code, out, errors in ends:
            assert (code, errors) == (0, "")
            rewards.append(json.loads(out)["verification"]["reward"])
        assert rewards == [1.0, 0.0]
        # The sessions are closed, and their tokens with them.
        for session in sessions:
            assert await status(session["url"], f"Bearer {session['token']}") == (401, "")
        for name, said in (
            ("plain", "environments.plain.mcp={}"),
            ("dsk", "Environments at this registry: desk, plain"),
        ):
            async with gym(folder, "env", "mcp", name, "--registry", at) as refused:
                code, out, errors = await end(refused, None)
            assert (code, out) == (2, "")
            assert said in errors
        code, _, log = await end(mesh)
    assert code == 0
    assert f"environment desk: tools over MCP at {services['desk']['mcp_url']}" in log
    assert not [one for one in sessions if one["token"] in log]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["desk", "--task-id", "nine"], 1, "has no example task 'nine'. Pass a task file"),
        (["desk", "--tasks", "tasks.jsonl", "--task-id", "nine"], 1, "has no task 'nine'"),
        (["desk", "--answer", "a.txt"], 2, "--verify"),
        (["dsk"], 2, "no environment 'dsk'"),
        (["desk", "--registry", "127.0.0.1:9"], 2, "--registry selects a running mesh"),
        (["desk", "--set", "environments.desk.mcp={host: 0.0.0.0}"], 2, "allow_other_hosts"),
    ],
)
async def test_what_is_wrong_is_said(
    folder: Path, arguments: list[str], code: int, said: str
) -> None:
    async with gym(folder, "env", "mcp", "--config", "mesh.yaml", *arguments) as process:
        ended, out, errors = await end(process, None)
    assert (ended, out) == (code, "")
    assert said in errors
    assert "Traceback" not in errors


async def test_a_registry_that_is_away(folder: Path) -> None:
    async with gym(folder, "env", "mcp", "desk", "--registry", "127.0.0.1:9") as process:
        code, out, errors = await end(process, None)
    assert (code, out) == (1, "")
    assert errors.startswith("gym-cli: ")
    assert "Traceback" not in errors
