"""Plays by OpenEnv's own clients; run by the interpreter that has the package.

Each line of standard input is a play as JSON, with `url` and `client`: `generic` (its
GenericEnvClient), `mcp` (its MCPToolClient), `http` (its HTTP routes); each line of standard output
is {"reward": …} or {"error": …}.
"""

# mypy: ignore-errors

from __future__ import annotations

import asyncio
import json
import sys
import traceback

import httpx
from openenv.core.env_server.mcp_types import CallToolAction, ListToolsAction
from openenv.core.env_server.types import (
    EnvironmentMetadata,
    ResetResponse,
    SchemaResponse,
    StepResponse,
)
from openenv.core.generic_client import GenericEnvClient
from openenv.core.mcp_client import MCPToolClient

# Their defaults are for machines that do nothing else.
BOUNDS = {
    "connect_timeout_s": 300.0, "message_timeout_s": 900.0, "websocket_ping_timeout_s": 300.0,
}  # fmt: skip


async def generic(url, play):
    async with GenericEnvClient(base_url=url, **BOUNDS) as env:
        first = await env.reset(task_id=play["task_id"], seed=play["seed"])
        assert (first.reward, first.done) == (None, False)
        assert first.observation["input"]
        for name, arguments in play["calls"]:
            step = await env.step({"type": "call_tool", "tool_name": name, "arguments": arguments})
            if step.done:
                return step.reward
        for _ in range(play["turns"]):
            step = await env.step({"type": "answer", "answer": play["message"]})
            if step.done:
                state = await env.state()
                assert (state["done"], state["reward"]) == (True, step.reward)
                return step.reward
    return None


async def mcp(url, play):
    async with MCPToolClient(base_url=url, **BOUNDS) as env:
        await env.reset(task_id=play["task_id"], seed=play["seed"])
        tools = await env.list_tools()
        assert tools[-1].name == "answer"
        for name, arguments in play["calls"]:
            step = await env.step(CallToolAction(tool_name=name, arguments=arguments))
            assert step.observation.tool_name == name
            if step.done:
                return step.reward
        for _ in range(play["turns"]):
            answer = {"answer": play["message"]}
            step = await env.step(CallToolAction(tool_name="answer", arguments=answer))
            if step.done:
                return step.reward
    return None


async def over_http(url, play):
    """A reset and a step, each in an environment of its own: for plays without calls."""
    async with httpx.AsyncClient(base_url=url, timeout=900) as http:
        SchemaResponse(**(await http.get("/schema")).json())
        EnvironmentMetadata(**(await http.get("/metadata")).json())
        ask = {"task_id": play["task_id"], "seed": play["seed"]}
        ResetResponse(**(await http.post("/reset", json=ask)).json())
        action = {"type": "answer", "answer": play["message"]}
        step = StepResponse(**(await http.post("/step", json={"action": action, **ask})).json())
        return step.reward if step.done else None


async def errors(url, play):
    """What the clients make of errors: the socket stays, and the next episode is a good one."""
    said = []
    async with GenericEnvClient(base_url=url, **BOUNDS) as env:
        for action in (
            {"type": "answer", "answer": "too early"},
            {"type": "fly"},
        ):
            try:
                await env.step(action)
            except RuntimeError as error:
                said.append(str(error))
        try:
            await env.reset(task_id="there is none")
        except RuntimeError as error:
            said.append(str(error))
        await env.reset(task_id=play["task_id"])
        listed = await env.step(ListToolsAction())
        assert listed.observation["tools"]
        await env.step({"type": "answer", "answer": ""})
        try:
            await env.step({"type": "answer", "answer": ""})
        except RuntimeError as error:
            said.append(str(error))
    return said


async def two(url, play):
    """Two sessions of one server at once: the second is another episode."""
    async with GenericEnvClient(base_url=url, **BOUNDS) as parent:
        one, other = await parent.new_session(), await parent.new_session()
        await one.reset(task_id=play["task_id"])
        await other.reset(task_id=play["task_id"])
        right = await one.step({"type": "answer", "answer": play["message"]})
        wrong = await other.step({"type": "answer", "answer": "not this"})
        return [right.reward, wrong.reward]


CLIENTS = {"generic": generic, "mcp": mcp, "http": over_http, "errors": errors, "two": two}


def main():
    for line in sys.stdin:
        play = json.loads(line)
        try:
            answer = {"reward": asyncio.run(CLIENTS[play["client"]](play["url"], play))}
        except Exception as error:
            answer = {"error": "".join(traceback.format_exception(error))}
        print(json.dumps(answer), flush=True)


main()
