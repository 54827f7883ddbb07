"""The one port of all protocols: who may use it, its bounds, its start and its end."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource import (
    Environment,
    EnvironmentConfig,
    Member,
    ModelEndpoint,
    ResourceService,
    Rollout,
    SandboxSpec,
    Session,
)
from gymmesh_resource.config import ProtocolsConfig
from gymmesh_resource.protocols import EnvironmentFacade
from gymmesh_resource.protocols.server import check_access
from gymmesh_runtime.config import ConfigError
from tests.unit.protocols.clients import OpenEnvClient
from tests.unit.protocols.offered import ROWS, Office, offered


async def test_all_at_once_on_one_port() -> None:
    async with offered(Office()) as desk, desk.openenv() as client:
        await client.send("reset")
        sid = await desk.ors.new_id()
        async with desk.ors.request("POST", "/create", sid, {"split": "examples", "index": 0}):
            pass
        assert len(await desk.nemo_gym.rows()) == 3
        assert desk.open_sessions == 2
        opened = await desk.mesh.create(rollout_pb2.Task(task_id="x", payload_json=b"{}"))
        assert opened.session_id  # by its RPCs, too


async def test_a_token_is_asked_for_where_there_is_one(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("let-me-in\n")
    async with offered(Office(), told={"token_file": str(file)}) as desk:
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Bearer wrong"}, 401),
            ({"X-API-Key": "é"}, 401),
            ({"Authorization": "Bearer let-me-in"}, 200),
            ({"X-API-Key": "let-me-in"}, 200),
        ):
            async with desk.http.get(f"{desk.url}/schema", headers=headers) as reply:
                assert reply.status == status, headers
        async with desk.http.get(f"{desk.url}/health") as reply:
            assert reply.status == 200


async def test_pages_in_a_browser_are_refused() -> None:
    async with offered(Office()) as desk:
        headers = {"Origin": "https://elsewhere.example"}
        async with desk.http.get(f"{desk.url}/schema", headers=headers) as reply:
            assert reply.status == 403


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"serve": []}, "serve"),
        ({"serve": ["ors", "ors"]}, "serve"),
        ({"serve": ["ors"], "host": "0.0.0.0"}, "host"),
        ({"serve": ["ors"], "host": "example.org", "allow_other_hosts": True}, "token_file"),
    ],
)
def test_what_others_could_use_is_refused(config: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_access(ProtocolsConfig(**{**config, "serve": tuple(config["serve"])}), "p")
    assert raised.value.path == f"p.{key}"


class Judged(Environment[None]):
    """Compares repeats."""

    examples = ROWS

    def verify_group(self, task: object, members: Sequence[Member]) -> list[float]:
        return [1.0 for _ in members]


class Lending(Environment[None]):
    """Lends a sandbox, and has no tools."""

    examples = ROWS
    sandbox = SandboxSpec(lent=True)

    def verify(self, session: Session[None], rollout: Rollout) -> float:
        return 1.0


class Playing(Environment[None]):
    """Plays by itself."""

    examples = ROWS

    async def play(self, session: Session[None], endpoint: ModelEndpoint) -> None:
        """Nothing."""

    def verify(self, session: Session[None], rollout: Rollout) -> float:
        return 1.0


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        (Judged(), "its verifier compares"),
        (Playing(), "it plays its episodes itself"),
        (Lending(), "it offers no tools, and agents work directly in its sandbox"),
    ],
)
async def test_an_environment_that_no_protocol_carries_is_refused_by_name(
    environment: Environment[None], why: str
) -> None:
    facade = EnvironmentFacade(
        ResourceService(EnvironmentConfig(), "e", "0", environment=environment)
    )
    await facade.ask()
    assert facade.problem().startswith(why)
    if not isinstance(environment, Lending):  # which wants a sandbox service
        with pytest.raises(ConfigError, match=f"'e' can't be served as ors: {why}"):
            async with offered(environment, ["ors"]):
                pass


async def test_tasks_of_files(tmp_path: Path) -> None:
    train, test = tmp_path / "train.jsonl", tmp_path / "test.jsonl"
    train.write_text("\n".join(map(json.dumps, ROWS)) + "\n\n")
    test.write_text(json.dumps({"prompt": "Say x.", "wanted": "x"}) + "\n")
    tasks = {"train": str(train), "test": str(test)}
    async with offered(Office(), told={"tasks": tasks}) as desk, desk.openenv() as client:
        counts = {}
        for split in tasks:
            body = {"split": split}
            async with desk.ors.request("POST", "/num_tasks", "", body) as reply:
                counts[split] = (await reply.json())["num_tasks"]
        assert counts == {"train": 3, "test": 1}
        shown = await client.send("reset", {"task_id": "second"})
        assert shown["observation"]["text"] == "Say two."
        shown = await client.send("reset", {"split": "test", "index": 0})
        assert shown["observation"]["text"] == "Say x."


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (None, "cannot be read"),
        ("", "have no tasks"),
        ("{}\n[1]\n", ":1: prompt: is missing"),
        ('{"prompt": "a"}\n[1]\n', ":2: "),
    ],
)
async def test_tasks_that_cannot_be_used(tmp_path: Path, text: str | None, part: str) -> None:
    file = tmp_path / "tasks.jsonl"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=part):
        async with offered(Office(), told={"tasks": {"train": str(file)}}):
            pass


async def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match="cannot listen on"):
            async with offered(Office(), told={"port": port}):
                pass


async def test_no_more_connections_than_allowed() -> None:
    async with offered(Office(), told={"connections": 2}) as desk:
        host, port = desk.url.removeprefix("http://").split(":")
        held = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
        reader, writer = await asyncio.open_connection(host, int(port))
        assert await reader.read() == b""
        for _, one in [*held, (reader, writer)]:
            one.close()


async def test_the_end_tells_clients_and_closes_their_sessions() -> None:
    office = Office()
    async with offered(office) as desk:
        socket_ = await desk.http.ws_connect(f"{desk.url}/ws")
        await OpenEnvClient(socket_).send("reset")
        url = desk.url
        told = asyncio.ensure_future(socket_.receive())
        await desk.mesh.service.close()
        assert (await told).type.name == "CLOSE"
        assert socket_.close_code == 1001
        assert office.closed == 1
        assert desk.mesh.service.meta.get("protocols") is None
        host, port = url.removeprefix("http://").split(":")
        with pytest.raises(OSError, match="Connect call failed"):
            await asyncio.open_connection(host, int(port))
