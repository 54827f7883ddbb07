"""Plays by the clients of ORS; run by the interpreter that has the packages.

Each line of standard input is a play as JSON, with the `url` of a server, the `name` of its
environment, and `client`: `ors` (ors-sdk) or `openreward`; each line of standard output is
{"reward": …} or {"error": …}.
"""

# mypy: ignore-errors

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback

from openreward import AsyncOpenReward
from openreward.api.errors import ToolCallError, ToolFailed
from ors.client import AsyncORS
from ors.client._types import Task
from ors.client._types import ToolCallError as OrsToolCallError

os.environ.setdefault("OPENREWARD_API_KEY", "none")
# They close their connections when they are forgotten.
CONNECTED = {}
WRONG_CALLS = (ToolCallError, OrsToolCallError)


def environment(play):
    """An environment's client, of the package that is asked for."""
    package = "ors" if play["client"].startswith("ors") else "openreward"
    if (package, play["url"]) not in CONNECTED:
        os.environ["OPENREWARD_SESSION_URL"] = os.environ["OPENREWARD_API_URL"] = play["url"]
        made = AsyncORS(base_url=play["url"]) if package == "ors" else AsyncOpenReward()
        CONNECTED[package, play["url"]] = made
    return CONNECTED[package, play["url"]].environments.get(play["name"])


async def task_of(env, play):
    """The client's own object for the play's task, with the seed of the session."""
    split = (await env.list_splits())[0]
    tasks = await env.list_tasks(split)
    assert len(tasks) == await env.num_tasks(split)
    found = next(one for one in tasks if one.task_spec["task_id"] == play["task_id"])
    assert (await env.get_task(split, found.task_spec["index"])).task_spec == found.task_spec
    found.task_spec["seed"] = play["seed"]
    return found


async def rollout(env, play, *, terminal):
    async with env.session(task=await task_of(env, play)) as session:
        assert await session.get_prompt()
        tools = await session.list_tools()
        assert tools[-1].name == "answer"
        assert await session.list_tools(format="openai")
        for name, arguments in play["calls"]:
            try:
                step = await session.call_tool(name, arguments)
            except WRONG_CALLS:  # for the policy to see
                continue
            if step.finished:
                return step.reward
        for _ in range(play["turns"]):
            if terminal and await session.is_assistant_message_final():
                step = await session.call_terminal_tool(play["message"])
            else:
                step = await session.call_tool("answer", {"answer": play["message"]})
            if step.finished:
                return step.reward
    return None


async def ors(play):
    return await rollout(environment(play), play, terminal=False)


async def openreward(play):
    return await rollout(environment(play), play, terminal=True)


async def by_index(play):
    """A session by split and index alone, and the tools of the environment."""
    env = environment(play)
    assert (await env.list_tools())[-1].name == "answer"
    split = (await env.list_splits())[0]
    async with env.session(split=split, index=0) as session:
        return (await session.call_tool("answer", {"answer": play["message"]})).reward


async def two(play):
    env = environment(play)
    task = await task_of(env, play)
    async with env.session(task=task) as one, env.session(task=task) as other:
        right = one.call_tool("answer", {"answer": play["message"]})
        wrong = other.call_tool("answer", {"answer": "not this"})
        return [step.reward for step in await asyncio.gather(right, wrong)]


async def errors(play):
    """What the client makes of errors."""
    env = environment(play)
    said = []
    async with env.session(task=await task_of(env, play)) as session:
        for name, arguments in (("fly", {}), ("answer", {"text": "x"})):
            try:
                await session.call_tool(name, arguments)
            except Exception as error:
                said.append(f"{type(error).__name__}: {error}")
        await session.call_tool("answer", {"answer": ""})
        try:
            await session.call_tool("answer", {"answer": ""})
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
    try:
        async with env.session(
            task=Task(environment_name=play["name"], task_spec={"task_id": "none"})
        ):
            pass
    except Exception as error:
        said.append(str(error))
    return said


async def fault(play):
    """What a fault of the environment is to the client."""
    env = environment(play)
    async with env.session(task=await task_of(env, play)) as session:
        try:
            await session.call_tool("answer", {"answer": play["message"]})
        except ToolFailed as error:
            return str(error)
    return None


CLIENTS = {
    "ors": ors,
    "openreward": openreward,
    "ors by index": by_index,
    "openreward by index": by_index,
    "ors two": two,
    "openreward two": two,
    "ors errors": errors,
    "fault": fault,
}


async def main():
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        play = json.loads(line)
        try:
            answer = {"reward": await CLIENTS[play["client"]](play)}
        except Exception as error:
            answer = {"error": "".join(traceback.format_exception(error))}
        print(json.dumps(answer), flush=True)


asyncio.run(main())
