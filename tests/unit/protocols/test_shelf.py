"""Every environment of the shelf by every protocol that can carry it: its own verdicts, exactly."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from gymmesh_resource.config import ProtocolName
from gymmesh_runtime.config import ConfigError
from tests.support.shelf import SHELF, Play, Shelved, shelved
from tests.unit.protocols.clients import NemoGymClient, OpenEnvClient, OrsClient

pytestmark = pytest.mark.long
_TURNS = ("game", "user_simulator")


@pytest.mark.parametrize("name", SHELF)
async def test_verdicts_are_the_environments_own(name: str, tmp_path: Path) -> None:
    protocols: list[ProtocolName] = ["openenv", "ors"]
    protocols += [] if name in _TURNS else ["nemo_gym"]
    async with shelved(name, protocols, tmp_path) as shelf, aiohttp.ClientSession() as http:
        worth = [(play, await shelf.worth(play)) for play in await shelf.plays(2)]
        assert any(reward is not None for _, reward in worth)
        for play, reward in worth:
            assert not play.wins or reward, play
            shelf.model.attack = play.attack
            for protocol in protocols:
                said = await _played(protocol, play, shelf, http)
                assert said == reward, (protocol, play)


async def _played(
    protocol: ProtocolName, play: Play, shelf: Shelved, http: aiohttp.ClientSession
) -> float | None:
    match protocol:
        case "openenv":
            async with http.ws_connect(f"{shelf.url}/ws") as socket:
                return await OpenEnvClient(socket).play(play)
        case "ors":
            return await OrsClient(http, shelf.url, shelf.name).play(play)
        case "nemo_gym":
            return await NemoGymClient(shelf.url).play(play)


@pytest.mark.parametrize("name", _TURNS)
async def test_nemo_gym_refuses_environments_of_turns(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' can't be served as nemo_gym: .*turns"):
        async with shelved(name, ["nemo_gym"], tmp_path):
            pass
