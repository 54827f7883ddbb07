"""Every environment of the shelf, driven by the clients of ORS: ors-sdk's and openreward's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.bridges.driving import Driver, driving_two, played_at_once
from tests.support.shelf import SHELF, shelved

_PACKAGES: Final = ("ors", "openreward")


@pytest.fixture(scope="module")
def clients(bridge_python: Path) -> Iterator[tuple[Driver, Driver]]:
    """The clients of both packages, in two processes for all tests: they take long to import."""
    with driving_two(bridge_python, Path(__file__).with_name("client.py")) as drivers:
        yield drivers


@pytest.fixture
def client(clients: tuple[Driver, Driver]) -> Driver:
    return clients[0]


@pytest.mark.parametrize("name", SHELF)
async def test_verdicts_are_the_environments_own(
    name: str, clients: tuple[Driver, Driver], tmp_path: Path
) -> None:
    async with shelved(name, ["ors"], tmp_path) as shelf:
        for play in await shelf.plays(100):
            reward = await shelf.worth(play)
            shelf.model.attack = play.attack
            rewards = await played_at_once(clients, shelf, play, _PACKAGES)
            assert rewards == dict.fromkeys(_PACKAGES, reward), play
        assert not len(shelf.service.sessions)


async def test_errors_and_two_at_once(client: Driver, tmp_path: Path) -> None:
    async with shelved("math", ["ors"], tmp_path) as shelf:
        play = next(one for one in await shelf.plays(1) if one.wins)
        for package in _PACKAGES:
            assert await client.play(shelf, play, f"{package} by index") == 1.0
            assert await client.play(shelf, play, f"{package} two") == [
                1.0,
                0.0,
            ]
        unknown, wrong, over, missing = await client.play(shelf, play, "ors errors")
        assert "There is no tool 'fly'" in unknown
        assert "Tool input validation error" in wrong
        assert "The episode is over" in over
        assert "task does not name a task of this environment" in missing


async def test_no_verdict_is_an_error(client: Driver, tmp_path: Path) -> None:
    async with shelved("llm_judge", ["ors"], tmp_path) as shelf:
        play = next(one for one in await shelf.plays(1) if one.wins)
        shelf.model.broken = True
        said = await client.play(shelf, play, "fault")
        assert "MODEL_UNREACHABLE: The model broke." in said
