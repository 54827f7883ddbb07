"""Rewards of tool calls and turns in episodes that verifiers drives; without verifiers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_mesh import Defaults, MeshConfig
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_responses import new_message
from gymmesh_trainers.trainer_collector import open_environment
from gymmesh_trainers.verifiers.sessions import MeshSession, MeshSessions
from tests.unit.protocols import offered

CALL_S = 60.0
FINISHED = pb.STOP_REASON_MODEL_FINISHED


@asynccontextmanager
async def session_of(environment: type) -> AsyncIterator[MeshSession]:
    """A session of an environment of tests/unit/protocols."""
    use = f"{offered.__name__}:{environment.__name__}"
    config = MeshConfig(
        environments={"e": EnvironmentConfig(use=use)}, defaults=Defaults(environment="e")
    )
    async with open_environment(config) as (directory, name):
        sessions = MeshSessions(directory, name, CALL_S, CALL_S)
        async with sessions.session(pb.Task(task_id="first")) as session:
            yield session


@pytest.mark.parametrize("calls", [0, 1, 2])
async def test_rewards_of_tool_calls_are_in_the_verdict(calls: int) -> None:
    async with session_of(offered.Paid) as session:
        for _ in range(calls):
            assert await session.call("dig", {}) == ("earth", False)
        assert session.done == (calls == 2)
        verdict = await session.judge([new_message("assistant", "done")], FINISHED)
    assert verdict.reward == 1.0 + 0.5 * calls
    parts = {part.name: part.value for part in verdict.components}
    assert parts == ({"verifier": 1.0, "turns": 0.5 * calls} if calls else {})


async def test_rewards_of_turns_are_in_the_verdict() -> None:
    async with session_of(offered.Talk) as session:
        for _ in range(2):
            await session.turn([new_message("assistant", "go on")])
        assert session.done
        verdict = await session.judge([new_message("assistant", "done")], FINISHED)
    assert verdict.reward == 2.0
