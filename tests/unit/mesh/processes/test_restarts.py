"""Services that die and are started again, where that is asked for."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh_mesh import MeshConfig, MeshSettings, remote, up
from gymmesh_mesh.processes import restarting
from gymmesh_model.config import ModelConfig
from gymmesh_runtime.errors import MeshError
from tests.support.ports import free_port


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarting, "_FIRST_RESTART_S", 0.05)


def config_of(folder: Path, **settings: Any) -> MeshConfig:
    path = folder / "recorded.jsonl"
    path.write_text(json.dumps({"match": "*", "answers": [{"text": "4"}]}) + "\n")
    return MeshConfig(
        models={"policy": ModelConfig(backend="replay", path=str(path))},
        mesh=MeshSettings(drain_s=1.0, **settings),
    )


async def test_each_service_is_started_again_at_its_address(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    ports = {"discovery_port": free_port(), "agent_port": free_port()}
    async with up(config_of(tmp_path, restarts=1, **ports)) as mesh:
        kept = asyncio.create_task(mesh.wait_for_death())
        before = {one.kind: one for one in mesh.infos}
        for info in before.values():
            os.kill(info.pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            old = {one.pid for one in before.values()}
            while {one.pid for one in mesh.infos} & old:  # noqa: ASYNC110  # there is no event
                await asyncio.sleep(0.05)
        after = {one.kind: one for one in mesh.infos}
        assert {kind: one.address for kind, one in after.items()} == {
            kind: one.address for kind, one in before.items()
        }
        assert not kept.done()
        async with remote(mesh.address_of("agent")) as outside:
            (agent,) = outside.directory.instances()
            about = await outside.directory.peer(agent).GetAgent(
                agent_pb2.GetAgentRequest(), timeout=60
            )
            assert about.name == "tool_loop"
        assert caplog.text.count("restart 1 of 1") == 4
        os.kill(after["model"].pid, signal.SIGKILL)
        said = await asyncio.wait_for(kept, 60)
        assert "the model service 'policy' ended with status -9" in said
        assert "it was restarted 1 times" in said


async def test_without_restarts_a_death_is_the_end(tmp_path: Path) -> None:
    async with up(config_of(tmp_path)) as mesh:
        agent = mesh.address_of("agent")
        (model,) = [one for one in mesh.infos if one.kind == "model"]
        os.kill(model.pid, signal.SIGKILL)
        said = await asyncio.wait_for(mesh.wait_for_death(), 60)
        assert "the model service 'policy' ended with status -9" in said
        assert "restarted" not in said
    with pytest.raises(MeshError):
        async with remote(agent):
            pass


async def test_one_that_does_not_come_up_again_uses_its_restarts_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with up(config_of(tmp_path, restarts=2)) as mesh:
        (tmp_path / "recorded.jsonl").unlink()
        (model,) = [one for one in mesh.infos if one.kind == "model"]
        os.kill(model.pid, signal.SIGKILL)
        said = await asyncio.wait_for(mesh.wait_for_death(), 60)
        assert "it was restarted 2 times" in said
        assert "could not start" in caplog.text
        assert "recorded.jsonl" in caplog.text
