"""An agent that runs a coroutine as its program, and what such programs send."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar, TypeAlias

import aiohttp
from openai import AsyncOpenAI

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.agent import Agent, Completion
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.context import RolloutContext
from gymmesh_agent.gateway.config import GatewayConfig
from gymmesh_agent.gateway.gateway import Gateway
from tests.unit.agent.mesh import Mesh, ask, running
from tests.unit.agent.servicers import ScriptedModel, TinyEnvironment
from tests.unit.agent.streams import Events

Program: TypeAlias = Callable[[Gateway], Awaitable[None]]


class ProgramAgent(Agent):
    """Runs `main` as its program."""

    runs_programs: ClassVar[bool] = True
    main: ClassVar[Program]

    async def run(self, context: RolloutContext) -> Completion:
        async with context.gateway() as gateway:
            await type(self).main(gateway)
            return Completion(rollout_pb2.STOP_REASON_PROGRAM_EXITED)


@asynccontextmanager
async def serving(
    program: Program, *steps: Any, repeat: bool = False, **gateway: Any
) -> AsyncGenerator[Mesh]:
    """A mesh whose agent runs the program; `gateway`: of GatewayConfig."""
    ProgramAgent.main = staticmethod(program)
    config = AgentConfig(
        use=f"{__name__}:{ProgramAgent.__name__}", gateway=GatewayConfig(**gateway)
    )
    models = {"policy": ScriptedModel(list(steps), repeat=repeat)}
    async with running("direct", TinyEnvironment(), models, config) as mesh:
        yield mesh


async def run(
    program: Program,
    *steps: Any,
    options: Mapping[str, Any] | None = None,
    repeat: bool = False,
    **gateway: Any,
) -> Events:
    """The events of one rollout whose agent runs the program."""
    async with serving(program, *steps, repeat=repeat, **gateway) as mesh:
        return await mesh.run(ask(**(options or {})))


def client(gateway: Gateway, **more: Any) -> AsyncOpenAI:
    """OpenAI's own client, which tries nothing twice."""
    return AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=gateway.key, max_retries=0, timeout=60, **more
    )


def chat(*messages: tuple[str, str], **more: Any) -> dict[str, Any]:
    """The body of a Chat Completions request."""
    listed = [{"role": role, "content": text} for role, text in messages]
    return {"model": "m", "messages": listed, **more}


@asynccontextmanager
async def posting(
    gateway: Gateway,
    body: Any,
    *,
    key: str | None = None,
    path: str = "/v1/chat/completions",
    headers: Mapping[str, str] | None = None,
) -> AsyncGenerator[aiohttp.ClientResponse]:
    """A request of HTTP with a key; None: the rollout's, empty: none."""
    key = gateway.key if key is None else key
    shown = {**(headers or {}), **({"Authorization": f"Bearer {key}"} if key else {})}
    async with (
        aiohttp.ClientSession() as session,
        session.post(gateway.url + path, json=body, headers=shown) as response,
    ):
        yield response
