"""Every environment of the shelf, driven by OpenEnv's own clients."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.bridges.driving import Driver, driving_two, played_at_once
from tests.support.shelf import SHELF, shelved

_KINDS: Final = ("generic", "mcp")


@pytest.fixture(scope="module")
def clients(bridge_python: Path) -> Iterator[tuple[Driver, Driver]]:
    """OpenEnv's clients, in two processes for all tests: they take long to import."""
    with driving_two(bridge_python, Path(__file__).with_name("client.py")) as drivers:
        yield drivers


@pytest.fixture
def client(clients: tuple[Driver, Driver]) -> Driver:
    return clients[0]


@pytest.mark.parametrize("name", SHELF)
async def test_verdicts_are_the_environments_own(
    name: str, clients: tuple[Driver, Driver], tmp_path: Path
) -> None:
    async with shelved(name, ["openenv"], tmp_path) as shelf:
        for play in await shelf.plays(100):
            reward = await shelf.worth(play)
            shelf.model.attack = play.attack
            rewards = await played_at_once(clients, shelf, play, _KINDS)
            assert rewards == dict.fromkeys(_KINDS, reward), play
            if not play.calls and name not in ("game", "user_simulator"):
                assert await clients[0].play(shelf, play, "http") == reward, play
        assert not len(shelf.service.sessions)


async def test_errors_and_the_end(client: Driver, tmp_path: Path) -> None:
    async with shelved("math", ["openenv"], tmp_path) as shelf:
        play = (await shelf.plays(1))[0]
        early, unknown, missing, over = await client.play(shelf, play, "errors")
        assert "Send reset first. (code: EXECUTION_ERROR)" in early
        assert "(code: VALIDATION_ERROR)" in unknown
        assert "(code: VALIDATION_ERROR)" in missing
        assert "The episode is over" in over


async def test_two_sessions_at_once(client: Driver, tmp_path: Path) -> None:
    async with shelved("math", ["openenv"], tmp_path) as shelf:
        play = next(one for one in await shelf.plays(1) if one.wins)
        assert await client.play(shelf, play, "two") == [1.0, 0.0]


async def test_openenvs_own_check_of_a_running_server(bridge_python: Path, tmp_path: Path) -> None:
    async with shelved("math", ["openenv", "ors"], tmp_path) as shelf:
        script = (
            "import json, sys\n"
            "from openenv.cli._validation import validate_running_environment as check\n"
            "print(json.dumps(check(sys.argv[1])))\n"
        )
        process = await asyncio.create_subprocess_exec(
            bridge_python, "-c", script, shelf.url, stdout=PIPE
        )
        out, _ = await process.communicate()
        report = json.loads(out.splitlines()[-1])
        failed = [one for one in report["criteria"] if not one["passed"]]
        assert not failed, failed
