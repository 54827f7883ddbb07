"""Servers of ors-sdk and of openreward behind `use: ors`; rewards by the standard's own client
beside ours.
"""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh_resource.environments.ors import OrsEnvironment
from gymmesh_resource.registry import example_tasks
from gymmesh_runtime.errors import MeshError
from tests.bridges.ors import policy
from tests.bridges.processes import collected, listening, said
from tests.unit.resource.served import served, task

Reason = errors_pb2.ErrorReason
SERVER = Path(__file__).with_name("their_server.py")
LOOP = Path(__file__).with_name("their_loop.py")
EPISODES = 100
ROWS = [{"prompt": [], "ors": {"index": index}} for index in range(EPISODES)]


@pytest.mark.parametrize("sdk", ["ors", "openreward"])
async def test_rewards_are_those_of_the_standards_client(
    bridge_python: Path, tmp_path: Path, sdk: str
) -> None:
    async with listening(bridge_python, SERVER, sdk) as server:
        theirs = await said(bridge_python, LOOP, server.url)
        environment = {"use": "ors", "options": {"url": server.url}}
        ours = await collected(tmp_path, environment, ROWS, policy.sums)
        listed = await asyncio.to_thread(example_tasks, OrsEnvironment(url=server.url), "o")
    rewards = {row["ors"]["index"]: row["reward"] for row in ours}
    assert len(rewards) == len(theirs) == len(listed) == EPISODES
    for index, calls in enumerate(theirs):
        assert rewards[index] == pytest.approx(math.fsum(calls)), index
    assert set(rewards.values()) == {1.0, 0.9, -0.5, -0.6}


async def test_a_terminal_tool_judges_the_last_message(bridge_python: Path, tmp_path: Path) -> None:
    async with listening(bridge_python, SERVER, "openreward") as server:
        environment = {"use": "ors", "options": {"url": server.url, "environment": "spoken"}}
        ours = await collected(
            tmp_path, environment, ROWS[:14], lambda shown: policy.message(shown[0])
        )
    assert [row["reward"] for row in sorted(ours, key=lambda row: row["ors"]["index"])] == [
        1.0 if (index % 7) % 2 == 0 else -0.5 for index in range(14)
    ]


@pytest.mark.parametrize("sdk", ["ors", "openreward"])
async def test_secrets_arrive(
    bridge_python: Path, sdk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_SECRET", "s1")
    async with listening(bridge_python, SERVER, sdk) as server:
        environment = OrsEnvironment(url=server.url, tasks=0, secrets={"search": "THE_SECRET"})
        async with served(environment) as mesh:
            session = (await mesh.create(task(ors={"index": 1}))).session_id
            assert (await mesh.call(session, "hint")).text == b"secret"


@pytest.mark.parametrize("sdk", ["ors", "openreward"])
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("die", Reason.ERROR_REASON_ENVIRONMENT_FAULT),
        ("hang", Reason.ERROR_REASON_TOOL_TIMEOUT),
        ("raise", Reason.ERROR_REASON_ENVIRONMENT_FAULT),
    ],
)
async def test_faults_are_typed(bridge_python: Path, sdk: str, given: str, reason: int) -> None:
    # Time is up for a hang alone, however slow the machine is.
    async with (
        listening(bridge_python, SERVER, sdk) as server,
        served(
            OrsEnvironment(url=server.url, tasks=0),
            tool_timeout_s=2.0 if given == "hang" else 120.0,
        ) as mesh,
    ):
        session = (await mesh.create(task(ors={"index": 1}))).session_id
        with pytest.raises(MeshError) as caught:
            await mesh.call(session, "submit", {"answer": given})
    assert caught.value.reason == reason


async def test_rows_that_the_server_refuses_name_the_key(bridge_python: Path) -> None:
    async with (
        listening(bridge_python, SERVER, "ors") as server,
        served(OrsEnvironment(url=server.url, tasks=0)) as mesh,
    ):
        for row in ({"index": 1000}, {"index": 0, "split": "missing"}):
            with pytest.raises(MeshError) as caught:
                await mesh.create(task(ors=row))
            assert caught.value.reason == Reason.ERROR_REASON_TASK_INVALID


async def test_sessions_at_once_and_a_killed_server(bridge_python: Path) -> None:
    async with (
        listening(bridge_python, SERVER, "openreward") as server,
        served(OrsEnvironment(url=server.url, tasks=0)) as mesh,
    ):
        sessions: list[Any] = [
            (await mesh.create(task(ors={"index": index}))).session_id for index in (8, 9)
        ]
        answers = await asyncio.gather(
            *(mesh.call(session, "submit", {"answer": "2"}) for session in sessions)
        )
        assert [answer.reward for answer in answers] == [1.0, -0.5]
        alive = (await mesh.create(task(ors={"index": 1}))).session_id
        server.process.kill()
        await server.process.wait()
        with pytest.raises(MeshError) as dead:
            await mesh.call(alive, "hint")
        assert dead.value.reason == Reason.ERROR_REASON_ENVIRONMENT_FAULT
