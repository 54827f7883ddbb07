"""A mesh of one process whose agent is a small program in a sandbox, and its rollouts' events."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_mesh import MeshConfig, embedded
from gymmesh_mesh.compose import Objects
from gymmesh_model.backends.base import Backend
from gymmesh_resource import Task
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_sandbox.config import SandboxConfig
from tests.support.optional import require

AGENT = "gymmesh.agent.v1.AgentService"
TIMEOUT = 300.0
#: An agent of its own kind: it runs the commands that the model calls, until there is none.
LOOP = """
import json, os, subprocess, sys, urllib.request

messages = [{"role": "user", "content": sys.argv[1]}]
shell = {"type": "function", "function": {"name": "shell", "parameters": {"type": "object",
         "properties": {"command": {"type": "string"}}, "required": ["command"]}}}
while True:
    body = json.dumps({"model": "m", "messages": messages, "tools": [shell]}).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
               "Content-Type": "application/json"}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, body, headers)
    message = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    messages.append(message)
    if not message.get("tool_calls"):
        print(message["content"])
        break
    for call in message["tool_calls"]:
        command = json.loads(call["function"]["arguments"])["command"]
        done = subprocess.run(command, shell=True, capture_output=True, text=True)
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": done.stdout})
"""
COMMAND = ["python3", "-c", LOOP, "{prompt}"]
#: The same, which asks for a title before its work.
TITLED = (
    """
import json, os, sys, urllib.request

asked = "Write a short title: " + sys.argv[1]
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": asked}]}).encode()
headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
           "Content-Type": "application/json"}
urllib.request.urlopen(urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)).read()
"""
    + LOOP
)


def shell(command: str) -> Mapping[str, Any]:
    """A call of the program's shell, as the model makes it."""
    return {"tool": "shell", "arguments": {"command": command}}


class ProgramMesh:
    """The agent's peer."""

    def __init__(self, agent: Any) -> None:
        self._agent = agent

    async def run(self, attempt: int = 1, **row: Any) -> Sequence[rollout_pb2.RolloutEvent]:
        """The events of one attempt of a rollout of a row."""
        prompt = {"responses_create_params": {"input": "Do it."}}
        task = Task.of({"task_id": "t", "environment": "workspace", **prompt, **row}).message
        request = agent_pb2.RunRolloutRequest(task=task, rollout_id="r1", attempt=attempt)
        stream = self._agent.RunRollout(request, timeout=TIMEOUT)
        return [response.event async for response in stream]


@asynccontextmanager
async def program_mesh(
    place: Path,
    backend: Backend,
    *,
    max_steps: int = 20,
    network: str | list[str] = "agent",
    **options: Any,
) -> AsyncIterator[ProgramMesh]:
    """`options`: of the agent; its program is the loop above unless they say otherwise.
    `network`: what its sandbox reaches.
    """
    require(shutil.which("bwrap"), "bubblewrap", "install the Debian package bubblewrap")
    if not {"program", "command", "function"} & set(options):
        options["command"] = COMMAND
    config = MeshConfig(
        environments={
            "workspace": EnvironmentConfig(
                use="workspace",
                sandboxes={"sandbox": "boxes"},
                verify_timeout_s=120,
                options={"network": network},
            )
        },
        sandboxes={
            "boxes": SandboxConfig(adapts=False, options={"folder": str(place / "sandboxes")})
        },
        agents={"coder": AgentConfig(use="program", max_steps=max_steps, options=options)},
    )
    async with embedded(config, Objects(backends={"policy": backend})) as mesh:
        instance = await mesh.directory.pick(AGENT, "coder")
        yield ProgramMesh(mesh.directory.peer(instance))
