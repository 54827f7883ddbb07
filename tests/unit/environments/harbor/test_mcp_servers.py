"""MCP servers of a task run in the agent's sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh_responses import loads
from gymmesh_runtime.errors import MeshError
from tests.unit.environments.harbor.made_tasks import NEW, harbor_task, stepped_task
from tests.unit.environments.harbor.test_verdicts import opened
from tests.unit.environments.workspace.desk import Desk
from tests.unit.resource.served import task

# A server of the protocol in plain Python, which is all that the sandbox has.
SERVER: Final = """
import json, os, sys
def answer(asked):
    method, params = asked["method"], asked.get("params", {})
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "writer", "version": "1"}}
    if method == "tools/list":
        text = {"type": "object", "properties": {"text": {"type": "string"}}}
        return {"tools": [{"name": name, "description": name, "inputSchema": text}
                          for name in ("write", "refuse", "die")]}
    if params["name"] == "die":
        os._exit(3)
    if params["name"] == "refuse":
        return {"content": [{"type": "text", "text": "never"}], "isError": True}
    with open("hello.txt", "a") as file:
        file.write(params["arguments"]["text"])
    return {"content": [{"type": "text", "text": f"process {os.getpid()}"}]}
print("this is no message", file=sys.stderr, flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    known = asked["method"] in ("initialize", "tools/list", "tools/call")
    said = {"result": answer(asked)} if known else {"error": {"code": -32601, "message": "no"}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)
"""
SERVED: Final = (
    f'{NEW}[[environment.mcp_servers]]\nname = "writer"\ntransport = "stdio"\n'
    'command = "python3"\nargs = ["server.py"]\n'
)
FILES: Final = {"environment/server.py": SERVER}


async def said(desk: Desk, session: str, name: str, **arguments: str) -> str:
    """The text of a tool's answer."""
    return (await desk.call(session, f"writer__{name}", arguments)).text.decode()


async def test_an_agent_has_the_tools_of_the_tasks_servers(tmp_path: Path) -> None:
    async with opened(tmp_path, {"t": harbor_task(SERVED, **FILES)}) as desk:
        of = task(harbor="t")
        answer = await desk.create(of)
        session = answer.session_id
        names = [tool.function.name for tool in answer.tools]
        assert names == ["shell", "writer__write", "writer__refuse", "writer__die"]
        assert (await said(desk, session, "write", text="hello")).startswith("process ")
        assert "never" in await said(desk, session, "refuse")
        assert (await desk.verify(session, of)).reward == 1.0
        await desk.close(session)


async def test_a_server_that_the_policy_ends_is_an_answer(tmp_path: Path) -> None:
    async with opened(tmp_path, {"t": harbor_task(SERVED, **FILES)}) as desk:
        of = task(harbor="t")
        session = (await desk.create(of)).session_id
        for _ in range(2):
            assert "The MCP server 'writer' failed" in await said(desk, session, "die")
        assert (await desk.verify(session, of)).reward == 0.0
        await desk.close(session)


async def test_servers_end_before_the_tests_and_start_again_for_a_step(tmp_path: Path) -> None:
    test = (
        "grep -l '[s]erver.py' /proc/[0-9]*/cmdline && r=0 || r=1\n"
        "echo $r >/logs/verifier/reward.txt\n"
    )
    steps = {f"steps/{name}/tests/test.sh": test for name in ("one", "two")}
    tasks = {"t": stepped_task({"one": "", "two": ""}, toml=SERVED, **FILES, **steps)}
    async with opened(tmp_path, tasks) as desk:
        of = task(harbor="t")
        session = (await desk.create(of)).session_id
        first = await said(desk, session, "write", text="a")
        assert (await desk.turn(session)).reward == 1.0
        second = await said(desk, session, "write", text="b")
        assert first != second
        verdict = await desk.verify(session, of)
        assert verdict.reward == 1.0
        assert set(loads(verdict.evidence_json)["steps"]) == {"one", "two"}
        await desk.close(session)


async def test_a_server_that_does_not_start_is_the_environments_fault(tmp_path: Path) -> None:
    tasks = {"t": harbor_task(SERVED), "u": harbor_task(SERVED.replace("python3", "nothing"))}
    async with opened(tmp_path, tasks) as desk:
        for name in tasks:
            said = r"the MCP server 'writer' \(\w+ server.py\) did not start: .*; it wrote: "
            with pytest.raises(MeshError, match=said) as raised:
                await desk.create(task(harbor=name))
            assert raised.value.reason == errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT
