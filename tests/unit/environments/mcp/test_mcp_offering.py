"""An environment that offers its tools over MCP by a key of its configuration."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from gymmesh_cli.shared.session import MeshPlan
from gymmesh_mesh import MeshConfig
from gymmesh_resource.config import EnvironmentConfig, McpConfig
from gymmesh_resource.mcp_server.offering import check_host
from gymmesh_resource.service import ResourceService
from gymmesh_responses import item_from_json, items_to_list
from gymmesh_runtime.config import ConfigError, load_config
from tests.conftest import require
from tests.unit.environments.mcp.test_mcp_server import Desk, connected, status, text
from tests.unit.resource.served import Served, served

require(find_spec("mcp"), "the mcp package", "pip install 'gymmesh[mcp]'")


async def ask(url: str, method: str, path: str, session_id: str) -> tuple[int, Any]:
    """What the owner of a session is told: the HTTP status, and the document."""
    import httpx2

    headers = {"Authorization": f"Bearer {session_id}"} if session_id else {}
    async with httpx2.AsyncClient(headers=headers, timeout=20.0) as http:
        reply = await http.request(method, url.removesuffix("/mcp") + path)
    return reply.status_code, reply.json() if reply.status_code == 200 else None


def url_of(mesh: Served) -> str:
    return str(mesh.service.meta["mcp"])


async def token_of(mesh: Served, session_id: str) -> str:
    code, document = await ask(url_of(mesh), "POST", "/session/tokens", session_id)
    assert code == 200
    return str(document["token"])


async def test_whoever_opened_a_session_gets_tokens_for_it() -> None:
    async with served(Desk(), mcp=McpConfig()) as mesh:
        one, two = [(await mesh.create()).session_id for _ in range(2)]
        first, second = await token_of(mesh, one), await token_of(mesh, one)
        other = await token_of(mesh, two)
        assert len({first, second, other, one, two}) == 5
        for token, said in ((first, "1"), (second, "2"), (other, "1")):
            async with connected(url_of(mesh), token) as client:
                assert text(await client.call_tool("note", {"text": "a"})) == said
        assert (await mesh.verify(one)).reward == 2.0


async def test_what_was_called_is_told_for_the_verdict() -> None:
    async with served(Desk(), mcp=McpConfig()) as mesh:
        session_id = (await mesh.create()).session_id
        token = await token_of(mesh, session_id)
        async with connected(url_of(mesh), token) as client:
            await client.call_tool("note", {"text": "é"})
            await client.call_tool("picture", {})
            await client.call_tool("refuse", {})
            with pytest.raises(Exception, match=r"RuntimeError"):
                await client.call_tool("break_down", {})
        _, document = await ask(url_of(mesh), "GET", "/session/items", session_id)
    items = document["items"]
    assert [one["type"] for one in items] == ["function_call", "function_call_output"] * 3
    assert [one["name"] for one in items[::2]] == ["note", "picture", "refuse"]
    assert items[0]["arguments"] == '{"text":"é"}'
    assert [a["call_id"] for a in items[::2]] == [b["call_id"] for b in items[1::2]]
    assert items[1]["output"] == "1"
    assert items[3]["output"][1]["type"] == "input_image"
    assert items_to_list([item_from_json(one) for one in items]) == items


async def test_the_owner_hears_of_the_end() -> None:
    async with served(Desk(), mcp=McpConfig()) as mesh:
        session_id = (await mesh.create()).session_id
        url, token = url_of(mesh), await token_of(mesh, session_id)
        assert await ask(url, "GET", "/session", session_id) == (200, {"done": False})
        async with connected(url, token) as client:
            await client.call_tool("leave", {})
        assert await ask(url, "GET", "/session", session_id) == (200, {"done": True})
        await mesh.close(session_id)
        assert await ask(url, "GET", "/session", session_id) == (401, None)


async def test_a_session_whose_owner_asks_is_not_idle() -> None:
    now = 0.0
    async with served(Desk(), mcp=McpConfig(), session_idle_s=60, clock=lambda: now) as mesh:
        held, forgotten = [(await mesh.create()).session_id for _ in range(2)]
        now = 50.0
        assert await ask(url_of(mesh), "GET", "/session", held) == (200, {"done": False})
        now = 100.0
        assert await mesh.service.sessions.sweep() == 1
        assert mesh.service.sessions.has(held)
        assert not mesh.service.sessions.has(forgotten)


async def test_nobody_else_is_told_anything() -> None:
    async with served(Desk(), mcp=McpConfig()) as mesh:
        session_id = (await mesh.create()).session_id
        url, token = url_of(mesh), await token_of(mesh, session_id)
        for method, path in (
            ("POST", "/session/tokens"),
            ("GET", "/session"),
            ("GET", "/session/items"),
            ("GET", "/session/no-such-thing"),
        ):
            for wrong in ("", "x", token, session_id + "x"):
                assert await ask(url, method, path, wrong) == (401, None)
        # The session's id is the owner's alone: it does not stand for the session as a token.
        assert await status(url, f"Bearer {session_id}") == (401, "")
        for method, path in (("GET", "/session/tokens"), ("PUT", "/session"), ("GET", "/sessionx")):
            assert (await ask(url, method, path, session_id))[0] == 404


async def test_it_serves_as_long_as_the_environment() -> None:
    before = asyncio.all_tasks()
    async with served(Desk(), mcp=McpConfig()) as mesh:
        url = url_of(mesh)
        assert url.startswith("http://127.0.0.1:")
        session_id = (await mesh.create()).session_id
        async with connected(url, await token_of(mesh, session_id)) as client:
            # A client that stays connected does not hold the environment back.
            await client.call_tool("note", {"text": "a"})
            await mesh.service.close()
            assert "mcp" not in mesh.service.meta
            with pytest.raises(OSError, match=r"refused|failed|Connect"):
                await asyncio.open_connection("127.0.0.1", int(url.split(":")[2].split("/")[0]))
    assert not [one for one in asyncio.all_tasks() - before if not one.done()]


async def test_without_the_key_nothing_is_offered() -> None:
    async with served(Desk()) as mesh:
        assert "mcp" not in mesh.service.meta


async def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match="another port") as caught:
            async with served(Desk(), mcp=McpConfig(port=port)):
                pytest.fail("it should not have opened")
    assert str(caught.value).startswith(f"environments.e.mcp: cannot listen on 127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1", True),
        ("127.3.2.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.7", False),
        ("", False),
        ("localhost.example.com", False),
        ("example.com", False),
    ],
)
def test_other_machines_are_let_in_only_where_that_is_said(host: str, allowed: bool) -> None:
    check_host(McpConfig(host=host, allow_other_hosts=True), "p")
    if allowed:
        check_host(McpConfig(host=host), "p")
    else:
        with pytest.raises(ConfigError, match=r"p\.host: .*set allow_other_hosts: true"):
            check_host(McpConfig(host=host), "p")
        with pytest.raises(ConfigError, match=r"environments\.e\.mcp\.host"):
            ResourceService(EnvironmentConfig(mcp=McpConfig(host=host)), "e", "e-0")


async def test_all_addresses_where_that_is_said() -> None:
    config = McpConfig(host="0.0.0.0", allow_other_hosts=True)
    async with served(Desk(), mcp=config) as mesh:
        assert url_of(mesh).startswith(f"http://{socket.gethostname()}:")


def test_the_key_in_a_configuration() -> None:
    config = load_config((), ("environments.math.mcp={port: 9000}",), MeshConfig)
    assert config.environments["math"].mcp == McpConfig(port=9000)
    with pytest.raises(ConfigError, match=r"environments.math.mcp.prot.*did you mean 'port'"):
        load_config((), ("environments.math.mcp.prot=9000",), MeshConfig)


def test_offering_tools_does_not_change_what_a_run_is() -> None:
    plain = MeshPlan(load_config((), (), MeshConfig), (), None)
    offering = MeshPlan(load_config((), ("environments.math.mcp={}",), MeshConfig), (), None)
    assert plain.identity() == offering.identity()


async def test_tokens_and_sessions_are_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with served(Desk(), mcp=McpConfig()) as mesh:
        session_id = (await mesh.create()).session_id
        token = await token_of(mesh, session_id)
        async with connected(url_of(mesh), token) as client:
            await client.call_tool("note", {"text": "a"})
        await status(url_of(mesh), f"Bearer {token}x")
    ours = [one.getMessage() for one in caplog.records if not one.name.startswith("httpcore")]
    assert any("tools over MCP at http://127.0.0.1:" in one for one in ours)
    assert not [one for one in ours if token in one or session_id in one]


def test_without_the_library_it_is_said_what_to_install() -> None:
    source = (
        "import asyncio, sys\n"
        "sys.modules['mcp'] = None\n"
        "from gymmesh_resource.config import EnvironmentConfig, McpConfig\n"
        "from gymmesh_resource.service import ResourceService\n"
        "from gymmesh_runtime.peers import PeerDirectory\n"
        "config = EnvironmentConfig(use='string_match', mcp=McpConfig())\n"
        "service = ResourceService(config, 'e', 'e')\n"
        "try: asyncio.run(service.open(PeerDirectory()))\n"
        "except ValueError as error: print(error)\n"
    )
    command = [sys.executable, "-c", source]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
    assert said.startswith("environments.e.mcp: ")
    assert "pip install 'gymmesh[mcp]'" in said
