"""Environments on OpenEnv's own base classes, served by its own server. Prints the URL.

their_server.py corridor|tools [MOST SESSIONS]
"""

# mypy: disable-error-code="misc, untyped-decorator"
# The framework has types of its own, in another interpreter.

from __future__ import annotations

import os
import random
import socket
import sys
import time
from typing import Any, Literal

import uvicorn
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State

MOST_STEPS = 9


class Move(Action):
    """Walk along the corridor."""

    move: Literal["left", "right", "die", "hang", "raise", "nan"]
    steps: int = 1


class Place(Observation):
    position: int
    goal: int


class Corridor(Environment):
    """A goal at a place of chance, and a reward of chance for each step."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State(episode_id="", step_count=0)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Place:
        self._random = random.Random(seed)
        self._goal = more.get("goal", self._random.randint(2, 6))
        self._position = 0
        self._state = State(episode_id=episode_id, step_count=0)
        return Place(position=0, goal=self._goal)

    def step(self, action: Move, timeout_s: float | None = None, **more: Any) -> Place:
        if action.move == "die":
            os._exit(1)
        if action.move == "hang":
            time.sleep(3600)
        if action.move == "raise":
            raise RuntimeError("the corridor is closed")
        self._state.step_count += 1
        self._position += action.steps if action.move == "right" else -action.steps
        there = self._position >= self._goal
        reward: Any = round(self._random.uniform(-1, 1), 3)
        if action.move == "nan":
            reward = float("nan")
        elif there:
            reward = True
        elif self._state.step_count % 3 == 0:
            reward = None
        over = there or self._state.step_count >= MOST_STEPS
        return Place(position=self._position, goal=self._goal, reward=reward, done=over)

    @property
    def state(self) -> State:
        return self._state


class Tools(MCPEnvironment):
    """Tools of an MCP server, the last of which has the reward."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        from fastmcp import FastMCP

        server = FastMCP("tools")

        @server.tool
        def add(a: int, b: int) -> int:
            """Add."""
            return a + b

        @server.tool
        def fail() -> str:
            """Fail."""
            raise ValueError("it always fails")

        @server.tool
        def submit(value: int) -> str:
            """Give the answer."""
            return f"got {value}"

        super().__init__(server)
        self._state = State(episode_id="", step_count=0)

    def reset(self, seed: int | None = None, **more: Any) -> Observation:
        self._wanted = 9 if (seed or 0) % 2 else 10
        return Observation(metadata={"status": "ready"})

    def _judged(self, action: Action, seen: Observation) -> Observation:
        if not isinstance(action, CallToolAction) or not isinstance(seen, CallToolObservation):
            return seen
        self._state.step_count += 1
        if action.tool_name == "submit":
            right = action.arguments.get("value") == self._wanted
            return seen.model_copy(update={"reward": float(right), "done": True})
        return seen.model_copy(update={"reward": -0.125})

    async def step_async(self, action: Action, **more: Any) -> Observation:
        return self._judged(action, await super().step_async(action, **more))

    def _step_impl(self, action: Action, **more: Any) -> Observation:
        raise NotImplementedError

    @property
    def state(self) -> State:
        return self._state


def main() -> None:
    kind, most = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100
    if kind == "corridor":
        app = create_app(Corridor, Move, Place, env_name="corridor", max_concurrent_envs=most)
    else:
        app = create_app(Tools, CallToolAction, CallToolObservation, max_concurrent_envs=most)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(128)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    # Nobody reads what is logged from here on.
    os.dup2(2, 1)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


main()
