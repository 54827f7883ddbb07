"""One mesh in which hostile programs run, each beside rollouts that mean no harm."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gymmesh.agent.v1 import agent_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.gateway import GatewayConfig
from gymmesh_mesh import MeshConfig, embedded
from gymmesh_mesh.compose import Objects
from gymmesh_model.backends.base import Backend, BackendCall
from gymmesh_model.ids import new_id
from gymmesh_resource import Task
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_responses import response_from_json
from gymmesh_sandbox.config import SandboxConfig
from tests.chaos.sandboxes.machine import SandboxMachine
from tests.chaos.sandboxes.using import MARK
from tests.integration.hostile_programs.cases import HostileProgram

Events = Sequence[rollout_pb2.RolloutEvent]

_AGENT: Final = "gymmesh.agent.v1.AgentService"
_TIMEOUT_S: Final = 300.0
_BODY_BYTES: Final = 4_000_000
_HOLD: Final = "HOLD"
_SECRET: Final = "tests-5e1f07"
#: What a rollout that means no harm asks, and what its model answers.
WORD: Final = "neighbour"
ANSWERS: Final = tuple(f"{WORD} says {number}" for number in range(3))
_RUN: Final = (
    "import os, sys\n"
    "sys.path.insert(0, os.environ['HOME'])\n"
    "import hostile\n"
    "exec(compile(sys.argv[1], 'program', 'exec'), {**vars(hostile), '__name__': '__main__'})\n"
)
_HONEST: Final = f"""
messages, words = [], []
for number in range(3):
    messages.append({{"role": "user", "content": f"{WORD} {{number}}"}})
    status, answer = request("POST", CHAT, {{"model": "m", "messages": messages}})
    assert status == 200, (status, answer)
    messages.append(json.loads(answer)["choices"][0]["message"])
    words.append(messages[-1]["content"])
with open("done", "w") as file:
    file.write(", ".join(words))
"""
_HONEST_CHECK: Final = {"name": "done", "run": f'test "$(cat done)" = "{", ".join(ANSWERS)}"'}


class Policy(Backend):
    """Answers what it is asked.

    `HOLD` is answered once a rollout beside the one that asks it has ended.

    Attributes:
        asked: how often it was called, by rollout.
    """

    kind = "policy-of-hostile-programs"
    endpoint_model = "scripted"
    calls_endpoint = False
    is_recorded = True
    capabilities = model_pb2.ModelCapabilities(tools=True, images=True)

    def __init__(self) -> None:
        self.asked: defaultdict[str, int] = defaultdict(int)
        self.holds: dict[str, asyncio.Event] = {}
        self.released: dict[str, asyncio.Event] = {}

    def expect(self, rollout_id: str) -> None:
        """A rollout may hold."""
        self.holds[rollout_id], self.released[rollout_id] = asyncio.Event(), asyncio.Event()

    async def create(self, call: BackendCall) -> responses_pb2.Response:
        self.asked[call.rollout_id] += 1
        text = _last_text(call.params.get("input"))
        if text == _HOLD:
            self.holds[call.rollout_id].set()
            await self.released[call.rollout_id].wait()
        content = [{"type": "output_text", "text": _answer(text), "annotations": []}]
        message = {"type": "message", "id": new_id("msg_"), "role": "assistant",
                   "status": "completed", "content": content}  # fmt: skip
        return response_from_json(
            {
                "id": new_id("resp_"),
                "object": "response",
                "status": "completed",
                "model": self.endpoint_model,
                "output": [message],
                "usage": {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12},
            }
        )


def _answer(text: str) -> str:
    if text.startswith(f"{WORD} "):
        return f"{WORD} says {text.removeprefix(WORD).strip()}"
    return f"you said {text[:40]}"


def _last_text(given: Any) -> str:
    items = [{"role": "user", "content": given}] if isinstance(given, str) else list(given or ())
    content = items[-1].get("content") if items else ""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    return "".join(str(part.get("text", "")) for part in parts)


@dataclass(frozen=True)
class HostileOutcome:
    """What came of a hostile rollout.

    asked: how often its model was called. neighbour: the events of the rollout beside it.
    neighbour_asked: how often that one's model was called. left: what is left of sandboxes.
    touched: how many connections the machine's own sockets got.
    """

    events: Events
    asked: int
    neighbour: Events
    neighbour_asked: int
    left: Sequence[str]
    touched: int


class Listeners:
    """Sockets of this machine that no program in a sandbox may reach."""

    def __init__(self) -> None:
        self.touched = 0
        self.name = f"gymmesh-{uuid.uuid4().hex}"
        self._servers: list[asyncio.Server] = []

    async def open(self) -> int:
        """Opens them; the port."""
        server = await asyncio.start_server(self._touch, "0.0.0.0", 0)
        self._servers.append(server)
        unix = await asyncio.start_unix_server(self._touch, f"\0{self.name}")
        self._servers.append(unix)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Closes them."""
        for server in self._servers:
            server.close()
            await server.wait_closed()

    async def _touch(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.touched += 1
        writer.close()


class HostileWorld:
    """Runs programs."""

    def __init__(
        self, policy: Policy, agents: Mapping[str, Any], machine: SandboxMachine, mark: str
    ) -> None:
        self.names: dict[str, str] = {}
        self.listeners = Listeners()
        self._policy = policy
        self._agents = agents
        self._machine = machine
        self._mark = mark

    async def run(self, program: HostileProgram, service: int) -> HostileOutcome:
        """One program, beside a rollout that means no harm. `service`: this process's id."""
        hostile, beside = f"hostile-{program.name}", f"beside-{program.name}"
        self._policy.expect(hostile)
        touched = self.listeners.touched
        row = program.task_row(self.names)
        running = asyncio.create_task(self._rollout(program.agent, hostile, row))
        holds = asyncio.create_task(self._policy.holds[hostile].wait())
        await asyncio.wait((running, holds), return_when=asyncio.FIRST_COMPLETED)
        holds.cancel()
        honest = {
            "responses_create_params": {"input": _HONEST},
            "checks": [_HONEST_CHECK],
        }
        try:
            neighbour = await self._rollout(program.agent, beside, honest)
        finally:
            self._policy.released[hostile].set()
        events = await running
        return HostileOutcome(
            events=events,
            asked=self._policy.asked[hostile],
            neighbour=neighbour,
            neighbour_asked=self._policy.asked[beside],
            left=await self._left(service),
            touched=self.listeners.touched - touched,
        )

    async def _rollout(self, agent: str, name: str, row: Mapping[str, Any]) -> Events:
        task = Task.of(
            {"task_id": name, "environment": "workspace", "env": {MARK: self._mark}, **row}
        ).message
        request = agent_pb2.RunRolloutRequest(task=task, rollout_id=name, attempt=1)
        stream = self._agents[agent].RunRollout(request, timeout=_TIMEOUT_S)
        return [response.event async for response in stream]

    async def _left(self, service: int) -> list[str]:
        # What the kernel has yet to bury of a sandbox that has ended is gone in a moment.
        async with asyncio.timeout(_TIMEOUT_S):
            for _ in range(100):
                if not (left := await self._machine.left(service)):
                    break
                await asyncio.sleep(0.05)
        return left


@asynccontextmanager
async def hostile_world(place: Path) -> AsyncIterator[HostileWorld]:
    """A world of one agent service for each kind of agent, on this machine's sandboxes."""
    gateway = GatewayConfig(
        connections=200,
        connections_per_rollout=16,
        calls_per_rollout=16,
        max_body_bytes=_BODY_BYTES,
        keep_alive_s=1.0,
    )
    prelude = Path(__file__).with_name("in_sandbox.py").read_text()
    options = {
        "command": ["python3", "-c", _RUN, "{prompt}"],
        "files": {"{home}/hostile.py": prelude},
        "timeout_s": 240.0,
        "output_bytes": 1 << 16,
    }
    kinds = {
        "coder": AgentConfig(use="program", max_steps=300, options=options, gateway=gateway),
        "brief": AgentConfig(
            use="program", max_steps=300, options={**options, "timeout_s": 5.0}, gateway=gateway
        ),
        "short": AgentConfig(use="program", max_steps=4, options=options, gateway=gateway),
    }
    store, mark = place / "sandboxes", uuid.uuid4().hex
    config = MeshConfig(
        environments={
            "workspace": EnvironmentConfig(
                use="workspace", sandboxes={"sandbox": "boxes"}, verify_timeout_s=120
            )
        },
        sandboxes={"boxes": SandboxConfig(adapts=False, options={"folder": str(store)})},
        agents=kinds,
    )
    policy = Policy()
    secret = place / "secret"
    secret.write_text("of the machine\n")
    secret.chmod(0o644)
    async with embedded(config, Objects(backends={"policy": policy})) as mesh:
        agents = {
            name: mesh.directory.peer(await mesh.directory.pick(_AGENT, name)) for name in kinds
        }
        machine = SandboxMachine(mark, store=store, daemon="")
        world = HostileWorld(policy, agents, machine, mark)
        port = await world.listeners.open()
        world.names = {
            "FILE": str(secret),
            "PORT": str(port),
            "SOCKET": world.listeners.name,
            "HOST": socket.gethostbyname(socket.gethostname()),
            "SECRET": _SECRET,
            "LESS": str(_BODY_BYTES - 100),
        }
        try:
            yield world
        finally:
            await world.listeners.close()
