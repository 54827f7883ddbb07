"""OpenEnv's own server behind `use: openenv`; rewards by its own client beside ours."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh_resource.environments.openenv import OpenEnvEnvironment
from gymmesh_responses import loads
from gymmesh_runtime.errors import MeshError
from tests.bridges.openenv import policy
from tests.bridges.processes import collected, listening, said
from tests.unit.resource.served import served, task

Reason = errors_pb2.ErrorReason
EPISODES = 100
SERVER = Path(__file__).with_name("their_server.py")
LOOP = Path(__file__).with_name("their_loop.py")


def corridor(shown: list[Any]) -> tuple[str, dict[str, Any]] | str:
    # The first is the prompt.
    action = policy.corridor(shown[1:])
    return "I stop." if action is None else ("step", action)


def tools(shown: list[Any]) -> tuple[str, dict[str, Any]] | str:
    return policy.tools([str(one) for one in shown[1:]]) or "I stop."


@pytest.mark.parametrize(("kind", "decide"), [("corridor", corridor), ("tools", tools)])
async def test_rewards_are_those_of_its_own_client(
    bridge_python: Path, tmp_path: Path, kind: str, decide: Any
) -> None:
    rows = [{"prompt": "Go.", "openenv": {"seed": seed}} for seed in range(EPISODES)]
    async with listening(bridge_python, SERVER, kind) as server:
        theirs = await said(bridge_python, LOOP, server.url, kind, str(EPISODES))
        environment = {"use": "openenv", "options": {"url": server.url}}
        ours = await collected(tmp_path, environment, rows, decide)
    rewards = {row["openenv"]["seed"]: row["reward"] for row in ours}
    assert len(rewards) == len(theirs) == EPISODES
    for seed, steps in enumerate(theirs):
        given = [reward for reward in steps if reward is not None]
        assert rewards[seed] == pytest.approx(math.fsum(given)), seed
    assert len(set(rewards.values())) > 1


async def test_state_and_refused_actions(bridge_python: Path) -> None:
    async with (
        listening(bridge_python, SERVER, "corridor") as server,
        served(OpenEnvEnvironment(url=server.url)) as mesh,
    ):
        row = {"seed": 1, "episode_id": "e1", "reset": {"goal": 2}}
        opened = await mesh.create(task(openenv=row))
        session = opened.session_id
        assert loads(opened.tools[0].function.parameters_json)["properties"].keys() == {
            "move",
            "steps",
        }
        bad = await mesh.call(session, "step", {"move": "up"})
        assert "move: Input should be 'left', 'right'" in bad.text.decode()
        more = await mesh.call(session, "step", {"move": "left", "speed": 3})
        assert "speed: Extra inputs are not permitted" in more.text.decode()
        won = await mesh.call(session, "step", {"move": "right", "steps": 2})
        assert (loads(won.text), won.reward, won.done) == ({"position": 2, "goal": 2}, 1.0, True)
        evidence = loads((await mesh.verify(session)).evidence_json)
        assert evidence["state"]["episode_id"] == "e1"
        assert evidence["state"]["step_count"] == 1


@pytest.mark.parametrize(
    ("move", "reason"),
    [
        ("die", Reason.ERROR_REASON_ENVIRONMENT_FAULT),
        ("hang", Reason.ERROR_REASON_TOOL_TIMEOUT),
        ("raise", Reason.ERROR_REASON_ENVIRONMENT_FAULT),
    ],
)
async def test_faults_are_typed(bridge_python: Path, move: str, reason: int) -> None:
    # Time is up for a hang alone, however slow the machine is.
    async with (
        listening(bridge_python, SERVER, "corridor") as server,
        served(
            OpenEnvEnvironment(url=server.url), tool_timeout_s=2.0 if move == "hang" else 120.0
        ) as mesh,
    ):
        session = (await mesh.create(task(openenv={"seed": 1}))).session_id
        with pytest.raises(MeshError) as caught:
            await mesh.call(session, "step", {"move": move})
    assert caught.value.reason == reason


async def test_a_reward_that_is_not_a_number_is_never_a_reward(bridge_python: Path) -> None:
    async with (
        listening(bridge_python, SERVER, "corridor") as server,
        served(OpenEnvEnvironment(url=server.url)) as mesh,
    ):
        session = (await mesh.create(task(openenv={"seed": 1}))).session_id
        answer = await mesh.call(session, "step", {"move": "nan"})
        # The server itself writes it as null.
        assert not answer.HasField("reward")


async def test_a_killed_server_fails_the_episode_and_a_full_one_is_tried_again(
    bridge_python: Path,
) -> None:
    async with (
        listening(bridge_python, SERVER, "corridor", "2") as server,
        served(OpenEnvEnvironment(url=server.url)) as mesh,
    ):
        two = [(await mesh.create(task(openenv={"seed": n}))).session_id for n in range(2)]
        with pytest.raises(MeshError) as full:
            await mesh.create(task(openenv={"seed": 3}))
        assert full.value.reason == Reason.ERROR_REASON_SESSION_LIMIT
        moved = await asyncio.gather(
            *(mesh.call(session, "step", {"move": "left"}) for session in two)
        )
        assert [loads(one.text)["position"] for one in moved] == [-1, -1]
        server.process.kill()
        await server.process.wait()
        for session in two:
            with pytest.raises(MeshError) as dead:
                await mesh.call(session, "step", {"move": "left"})
            assert dead.value.reason == Reason.ERROR_REASON_ENVIRONMENT_FAULT
