"""The environment: a session for each episode, with the environment's turns between the model's."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import verifiers.v1 as vf

from gymmesh_trainers.verifiers.prompts import messages_from
from gymmesh_trainers.verifiers.sessions import MeshSession, MeshSessions, sessions_at
from gymmesh_trainers.verifiers.taskset import MeshTask, message_of
from gymmesh_trainers.verifiers.tool_calls import tool_calls_served
from gymmesh_trainers.verifiers.transcript import items_of


class MeshEnvConfig(vf.EnvConfig):  # type: ignore[misc]  # verifiers ships no types here
    """`agent`: who plays."""

    agent: vf.AgentConfig = vf.AgentConfig()


class MeshEnv(vf.Env[MeshEnvConfig]):  # type: ignore[misc]  # as above
    """Plays tasks of gymmesh."""

    _sessions: MeshSessions
    _url = ""

    async def start(self) -> None:
        """Find the environment. Raises UserError for one whose episodes verifiers can't drive."""
        self._stack = AsyncExitStack()
        config = self.taskset.config
        opening = sessions_at(config.place, config.environment, config.call_s, config.verify_s)
        self._sessions = await self._stack.enter_async_context(opening)
        served = tool_calls_served(self._sessions.open_now)
        self._url = await self._stack.enter_async_context(served)

    async def stop(self) -> None:
        """Let go of it."""
        await self._stack.aclose()

    async def run(self, task: MeshTask, agents: Any) -> None:
        """One episode: the harness plays, and the environment takes its turns."""
        async with self._sessions.session(message_of(task.data.row)) as session:
            session.url = self._url
            played = task.played_in(session)
            if session.takes_turns:
                async with agents.agent.interaction(played) as interaction:
                    await _converse(interaction, session)
            else:
                await agents.agent.run(played)


async def _converse(interaction: Any, session: MeshSession) -> None:
    """The model and the environment in turn, until one of them ends it."""
    names = [tool["name"] for tool in session.tools]
    seen = 0
    segment = await interaction.turn()
    while not segment.terminated and not session.done:
        items = items_of(interaction.trace.branches, names)
        said = await session.turn(items[seen:])
        seen = len(items) + len(said)
        if not session.done:
            segment = await interaction.turn(messages_from(said, interaction.trace.task.key))
