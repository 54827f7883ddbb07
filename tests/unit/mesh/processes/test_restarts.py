"""Services that die and are started again, where that is asked for."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh_client import CollectOptions, Collector, MemoryOutput
from gymmesh_mesh import MeshConfig, MeshSettings, discovered, read_target, remote, up
from gymmesh_mesh.processes import restarting
from gymmesh_mesh.processes.restarting import RestartedProcess
from gymmesh_model.config import ModelConfig
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.text import PlainFormatter
from tests.support.ports import free_port
from tests.support.rollouts import make_task

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarting, "_FIRST_RESTART_S", 0.05)


def fetch(address: str) -> bytes:
    with urlopen(f"http://{address}/metrics", timeout=30) as answer:
        body: bytes = answer.read()
    return body


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
        for one in ("address", "metrics_address"):
            assert {kind: getattr(info, one) for kind, info in after.items()} == {
                kind: getattr(info, one) for kind, info in before.items()
            }
        assert not kept.done()
        async with remote(mesh.address_of("agent")) as outside:
            (agent,) = outside.directory.instances()
            about = await outside.directory.peer(agent).GetAgent(
                agent_pb2.GetAgentRequest(), timeout=60
            )
            assert about.name == "tool_loop"
        said = [record for record in caplog.records if "restart 1 of 1" in record.getMessage()]
        assert len(said) == 4
        plain = PlainFormatter().format(next(one for one in said if "'policy'" in one.getMessage()))
        first, *log = plain.splitlines()
        assert first.endswith("service 'policy' ended with status -9; the end of its log:")
        assert log
        model = after["model"]
        assert f"service 'policy' was restarted; the new pid is {model.pid}" in caplog.text
        assert b"gymmesh_" in await asyncio.to_thread(fetch, model.metrics_address)
        os.kill(after["model"].pid, signal.SIGKILL)
        why = await asyncio.wait_for(kept, 60)
        assert "the model service 'policy' ended with status -9" in why
        assert "the process was already restarted 1 times" in why


@pytest.fixture
def squatter(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[socket.socket]]:
    """Listens at the old ports of every process before it is started again."""
    held: list[socket.socket] = []
    start_again = RestartedProcess._start_again

    async def taken_first(process: RestartedProcess) -> str:
        (info,) = process.infos
        for address in (info.address, info.metrics_address):
            host, _, port = address.rpartition(":")
            held.append(socket.create_server((host, int(port))))
        return await start_again(process)

    monkeypatch.setattr(RestartedProcess, "_start_again", taken_first)
    yield held
    for one in held:
        one.close()


async def test_a_port_that_somebody_else_took_is_given_up_for_another(
    tmp_path: Path, squatter: list[socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    async with up(config_of(tmp_path, restarts=1)) as mesh:
        kept = asyncio.create_task(mesh.wait_for_death())
        before = [one for one in mesh.infos if one.kind in ("model", "agent")]
        for one in before:
            os.kill(one.pid, signal.SIGKILL)
        async with asyncio.timeout(90):
            # The old leases run out first, so that no instance is listed at two addresses.
            while {one.address for one in before} & {one.address for one in mesh.infos}:
                assert not kept.done(), kept.result()
                await asyncio.sleep(0.05)
        assert len(squatter) == 4
        after = {one.kind: one for one in mesh.infos}
        for one in before:
            now = after[one.kind]
            assert f"at {one.address}. The service's new address is {now.address}" in caplog.text
            moved = f"at {one.metrics_address}. The new one is {now.metrics_address}"
            assert moved in caplog.text
            assert b"gymmesh_" in await asyncio.to_thread(fetch, now.metrics_address)
        registry = f"discovery://{mesh.address_of('discovery')}/tool_loop"
        async with discovered(read_target(registry, MeshConfig().discovery)) as outside:
            run = Collector(outside.agents.connect, MemoryOutput(), CollectOptions())
            task = make_task(expected_answer="4")
            tally = await asyncio.wait_for(run.run([task]), 60)
        assert (tally.completed, tally.failed) == (1, 0)
        kept.cancel()


@pytest.mark.parametrize("kind", ["discovery", "agent"])
async def test_a_port_that_others_rely_on_is_named_when_it_is_taken(
    tmp_path: Path, kind: str, squatter: list[socket.socket]
) -> None:
    """The registry's, which nothing else tells, and one of the configuration."""
    ports = {"agent_port": free_port()} if kind == "agent" else {}
    async with up(config_of(tmp_path, restarts=1, **ports)) as mesh:
        (before,) = [one for one in mesh.infos if one.kind == kind]
        os.kill(before.pid, signal.SIGKILL)
        said = await asyncio.wait_for(mesh.wait_for_death(), 60)
    assert f"could not start: cannot listen on {before.address}: the port is taken" in said
    assert "the process was already restarted 1 times" in said
    assert len(squatter) == 2


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
        assert "the process was already restarted 2 times" in said
        assert "could not start" in caplog.text
        assert "recorded.jsonl" in caplog.text
