"""A NeMo Gym server as an environment.

Task rows are the server's own: every key goes to the server. The protocol decides what the server
is asked for: a resources server with tools (tool_server.py), a step server (step_server.py), or a
server that runs whole episodes (episode_server.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import msgspec

from gymmesh.responses.v1 import responses_pb2
from gymmesh_resource import (
    Environment,
    ModelEndpoint,
    Outcome,
    Rollout,
    Session,
    Task,
    Transcript,
    Turn,
)
from gymmesh_resource.environments.nemo_gym.client import Client, check_url
from gymmesh_resource.environments.nemo_gym.documents import row_of
from gymmesh_resource.environments.nemo_gym.episode_server import EpisodeProtocol
from gymmesh_resource.environments.nemo_gym.model_server import ModelServer
from gymmesh_resource.environments.nemo_gym.protocol import NemoProtocol, RemoteSession
from gymmesh_resource.environments.nemo_gym.server import NemoServer
from gymmesh_resource.environments.nemo_gym.step_server import StepProtocol
from gymmesh_resource.environments.nemo_gym.tool_server import ToolProtocol


class NemoGymEnvironment(Environment[RemoteSession]):
    """Tasks, tools and verdicts of a NeMo Gym server, over its HTTP API.

    The reward is the server's; other numbers of its verdict are components.
    """

    version = "2"
    in_order = True
    verify_needs_session = True
    keep_state = False  # the state is at the server
    reward_range = (-math.inf, math.inf)  # the server's own, which it does not declare
    examples = "tasks.jsonl"

    def __init__(
        self,
        *,
        url: str,
        protocol: Literal["tools", "steps", "run"] = "tools",
        headers: dict[str, str] | None = None,
        close_path: str | None = None,
        model_server: str = "",
        taskset: str = "",
        max_connections: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 512,
        max_answer_bytes: Annotated[int, msgspec.Meta(ge=1024, le=1 << 30)] = 16 << 20,
    ) -> None:
        """Options.

        url: the server's root, such as http://127.0.0.1:8000.
        protocol: `tools` for a resources server with tools and a verdict, `steps` for one with
            `/reset` and `/step`, `run` for an Environment Server or agent server.
        headers: sent with every request.
        close_path: posted to when a session ends, for servers with tools that free something then,
            with what `/seed_session` answered as the body.
        model_server: with `run`, where NeMo Gym's model server calls the policy, host and port
            (`policy_base_url`): the environment listens there.
        taskset: with `run`, its name, for an Environment Server that takes typed episodes; empty:
            the server takes rows.
        max_connections: how many requests may be under way. max_answer_bytes: of one answer.
        """
        if bool(model_server) != (protocol == "run"):
            raise ValueError(
                "the protocol 'run' requires the option 'model_server'; other protocols do not "
                "accept this option"
            )
        if taskset and protocol != "run":
            raise ValueError("the option 'taskset' works only with the protocol 'run'")
        if close_path and protocol != "tools":
            raise ValueError("the option 'close_path' works only with the protocol 'tools'")
        root, sent = check_url(url), headers or {}
        server = NemoServer(
            root,
            partial(
                Client,
                root,
                headers=sent,
                max_connections=max_connections,
                max_bytes=max_answer_bytes,
            ),
        )
        self._protocol: NemoProtocol
        if protocol == "tools":
            self._protocol = ToolProtocol(server, (close_path or "").strip("/"), sent)
        elif protocol == "steps":
            self._protocol = StepProtocol(server)
        else:
            self._protocol = EpisodeProtocol(server, ModelServer(model_server), taskset)

    @property
    def multi_turn(self) -> bool:
        """Whether the server is one of steps."""
        return self._protocol.multi_turn

    @property
    def plays(self) -> bool:
        """Whether the protocol plays episodes itself."""
        return self._protocol.plays

    async def open(self) -> None:
        """Get the HTTP client ready; the server may still be starting."""
        await self._protocol.open()

    async def close(self) -> None:
        """Close the connections."""
        await self._protocol.close()

    def check_task(self, task: Task) -> None:
        row_of(task)
        self._protocol.check(task)

    async def create_state(self, task: Task, seed: int) -> RemoteSession:
        """Start a session of the server with the task's row."""
        started: RemoteSession = await self._protocol.start(task)
        return started

    async def session_tools(self, session: Session[RemoteSession]) -> Sequence[Mapping[str, Any]]:
        return await self._protocol.tools(session.state, session.task)

    def opening(self, session: Session[RemoteSession]) -> str | Sequence[str]:
        return self._protocol.opening(session.state) or ()

    async def call_other(
        self, session: Session[RemoteSession], name: str, arguments: dict[str, Any]
    ) -> str | responses_pb2.ContentParts:
        """One of the row's tools, or of the session's."""
        return await self._protocol.call(session.state, name, arguments)

    async def next_turn(self, session: Session[RemoteSession], new: Transcript) -> Turn:
        """A step of a step server."""
        return await self._protocol.turn(session.state, new)

    async def play(self, session: Session[RemoteSession], endpoint: ModelEndpoint) -> None:
        """The whole episode, as NeMo Gym's own agents play it."""
        await self._protocol.play(session.state, session.task, endpoint)

    async def verify(self, session: Session[RemoteSession], rollout: Rollout) -> Outcome:
        """The server's verdict on the whole rollout."""
        return await self._protocol.verify(session.state, rollout)

    async def close_session(self, session: Session[RemoteSession]) -> None:
        """Tell the server, where it wants to know."""
        await self._protocol.end(session.state)
