"""A small environment that is served with protocols, and what tests look at in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_resource import (
    Environment,
    Pending,
    Rollout,
    Session,
    ToolError,
    ToolResult,
    Turn,
    Verdict,
    tool,
)
from gymmesh_resource.config import ProtocolName, ProtocolsConfig
from gymmesh_responses import item_from_json
from tests.unit.protocols.clients import NemoGymClient, OpenEnvClient, OrsClient
from tests.unit.resource.served import Served, served

ALL: Sequence[ProtocolName] = ("openenv", "ors", "nemo_gym")
PIXEL = "iVBORw0KGgo="
ROWS = [
    {"task_id": "first", "prompt": "Say one.", "wanted": "one"},
    {"task_id": "second", "prompt": "Say two.", "wanted": "two"},
    {"task_id": "unjudged", "prompt": "Say nothing.", "wanted": ""},
]


@dataclass
class Notes:
    texts: list[str] = field(default_factory=list)


class Office(Environment[Notes]):
    """Keeps notes."""

    version = "7"
    state = Notes
    examples = ROWS

    def __init__(self) -> None:
        self.closed = 0
        self.waiting = asyncio.Event()
        self.gone = asyncio.Event()

    @tool
    def note(self, session: Session[Notes], text: str) -> int:
        """Keep a text."""
        session.state.texts.append(text)
        return len(session.state.texts)

    @tool
    def refuse(self) -> str:
        """Say no."""
        raise ToolError("Not on a Sunday.")

    @tool
    def break_down(self) -> str:
        """Fail."""
        raise RuntimeError("a secret of ours")

    @tool
    def leave(self, session: Session[Notes]) -> str:
        """End it."""
        session.finish()
        return "bye"

    @tool
    def long(self) -> str:
        """Say much."""
        return "a b " * 5_000

    @tool
    async def wait(self) -> str:
        """Take for ever."""
        self.waiting.set()
        await asyncio.sleep(600)
        return "done"

    @tool
    def picture(self) -> responses_pb2.ContentParts:
        """Show something."""
        output = [
            {"type": "input_text", "text": "look"},
            {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
        ]
        item = item_from_json({"type": "function_call_output", "call_id": "", "output": output})
        return item.function_call_output.parts

    async def close_session(self, session: Session[Notes]) -> None:
        self.closed += 1
        self.gone.set()

    def verify(self, session: Session[Notes], rollout: Rollout) -> Any:
        wanted = rollout.task.payload["wanted"]
        if not wanted:
            return Pending("Nobody looked.")
        right = rollout.answer == wanted or wanted in session.state.texts
        return Verdict(float(right), components={"notes": float(len(session.state.texts))})


class Talk(Environment[Notes]):
    """Counts what it is told, up to two."""

    state = Notes
    reward_rule = resource_pb2.REWARD_RULE_SUM
    reward_range = (0.0, 3.0)
    examples = ROWS[:1]

    def opening(self, session: Session[Notes]) -> str:
        return "Begin."

    def next_turn(self, session: Session[Notes], new: Any) -> Turn:
        session.state.texts.append("said")
        count = len(session.state.texts)
        return Turn(f"That was {count}.", reward=0.5, done=count == 2)

    def verify(self, session: Session[Notes], rollout: Rollout) -> float:
        return 1.0


class Paid(Environment[Notes]):
    """Pays for each call of its tool, and ends with the second."""

    state = Notes
    reward_rule = resource_pb2.REWARD_RULE_SUM
    reward_range = (0.0, 3.0)
    examples = ROWS[:1]

    @tool
    def dig(self, session: Session[Notes]) -> ToolResult:
        """Dig."""
        session.state.texts.append("dug")
        return ToolResult("earth", reward=0.5, done=len(session.state.texts) == 2)

    def verify(self, session: Session[Notes], rollout: Rollout) -> float:
        return 1.0


@dataclass
class Offered:
    """An environment, its service and its protocols."""

    mesh: Served
    http: aiohttp.ClientSession
    url: str
    name: str = "e"

    @asynccontextmanager
    async def openenv(self, query: str = "") -> AsyncIterator[OpenEnvClient]:
        async with self.http.ws_connect(f"{self.url}/ws{query}") as socket:
            yield OpenEnvClient(socket)

    @property
    def ors(self) -> OrsClient:
        return OrsClient(self.http, self.url, self.name)

    @property
    def nemo_gym(self) -> NemoGymClient:
        return NemoGymClient(self.url)

    @property
    def open_sessions(self) -> int:
        return len(self.mesh.service.sessions)

    async def until_closed(self) -> None:
        """Until no session is open."""
        await self.mesh.service.sessions.until_empty()


@asynccontextmanager
async def offered(
    environment: Environment[Any],
    serve: Sequence[ProtocolName] = ALL,
    *,
    told: dict[str, Any] | None = None,
    **config: Any,
) -> AsyncIterator[Offered]:
    """`told`: further keys of ProtocolsConfig. `config`: of EnvironmentConfig."""
    protocols = ProtocolsConfig(serve=tuple(serve), **(told or {}))
    async with (
        served(environment, protocols=protocols, **config) as mesh,
        aiohttp.ClientSession() as http,
    ):
        yield Offered(mesh, http, mesh.service.meta["protocols"])
