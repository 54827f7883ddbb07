"""Our environments' tools over MCP, used by the mcp package's own client over HTTP."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource import Environment, Rollout, Session, ToolError, tool
from gymmesh_responses import item_from_json, params_from_json
from gymmesh_runtime.errors import MeshError
from tests.conftest import require
from tests.support.logged import without_other_loops
from tests.unit.resource.served import Served, served

require(find_spec("mcp"), "the mcp package", "pip install 'gymmesh[mcp]'")

if TYPE_CHECKING:
    from mcp import Client

    from gymmesh_resource.mcp_server import ToolServer

_OTHER = {"type": "function", "name": "other", "description": "Another.", "parameters": {}}
_PIXEL = "iVBORw0KGgo="


@dataclass
class Notes:
    texts: list[str] = field(default_factory=list)


class Desk(Environment[Notes]):
    """Keeps notes."""

    reward_range = (0.0, 10.0)

    version = "7"
    state = Notes

    @tool
    def note(self, session: Session[Notes], text: str) -> int:
        """Keep a text.

        Args:
            text: what to keep
        """
        session.state.texts.append(text)
        return len(session.state.texts)

    @tool
    def refuse(self) -> str:
        """Say no."""
        raise ToolError("Not on a Sunday.")

    @tool
    def break_down(self) -> str:
        """Fail."""
        raise RuntimeError("a secret of ours")

    @tool
    def leave(self, session: Session[Notes]) -> str:
        """End it."""
        session.finish()
        return "bye"

    @tool
    def picture(self) -> responses_pb2.ContentParts:
        """Show something."""
        output = [
            {"type": "input_text", "text": "look"},
            {"type": "input_image", "image_url": f"data:image/png;base64,{_PIXEL}"},
        ]
        item = item_from_json({"type": "function_call_output", "call_id": "", "output": output})
        return item.function_call_output.parts

    def session_tools(self, session: Session[Notes]) -> Sequence[Mapping[str, Any]]:
        return [_OTHER]

    def call_other(self, session: Session[Notes], name: str, arguments: dict[str, Any]) -> Any:
        return {"called": name, "with": arguments}

    def verify(self, session: Session[Notes], rollout: Rollout) -> float:
        return float(len(session.state.texts))


@asynccontextmanager
async def offered() -> AsyncIterator[tuple[Served, ToolServer, str]]:
    """An environment, its tool server, and that one's URL."""
    from gymmesh_resource.mcp_server import ToolServer, serve

    async with served(Desk()) as mesh:
        app = ToolServer(mesh.service)
        async with serve(app) as url:
            yield mesh, app, url


@asynccontextmanager
async def connected(url: str, token: str) -> AsyncIterator[Client]:
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=20.0) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


async def status(url: str, authorization: str | None) -> tuple[int, str]:
    """The HTTP status that a plain tools/list gets, and the body."""
    import httpx2

    headers = {"Accept": "application/json, text/event-stream"}
    if authorization is not None:
        headers["Authorization"] = authorization
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    async with httpx2.AsyncClient(timeout=20.0) as http:
        reply = await http.post(url, json=body, headers=headers)
    return reply.status_code, reply.text


def text(result: Any) -> str:
    return str(result.content[0].text)


async def test_an_outside_agent_uses_the_tools_of_its_session() -> None:
    async with offered() as (mesh, app, url):
        session = (await mesh.create()).session_id
        async with connected(url, app.mint(session)) as client:
            tools = {one.name: one for one in (await client.list_tools()).tools}
            first = await client.call_tool("note", {"text": "a"})
            second = await client.call_tool("note", {"text": "b"})
            other = await client.call_tool("other", {"x": [1, 2.5]})
        verdict = await mesh.verify(session)
    assert set(tools) == {"note", "refuse", "break_down", "leave", "picture", "other"}
    assert tools["note"].description == "Keep a text."
    assert tools["note"].input_schema["properties"]["text"]["description"] == "what to keep"
    assert (text(first), text(second)) == ("1", "2")
    assert json.loads(text(other)) == {"called": "other", "with": {"x": [1, 2.5]}}
    assert verdict.reward == 2.0


async def test_the_tasks_own_tools_are_offered_where_they_are_answered() -> None:
    own = [{"type": "function", "name": "own", "parameters": {"type": "object"}}]
    task = rollout_pb2.Task(
        task_id="t", environment="e", params=params_from_json({"input": "x", "tools": own})
    )
    async with offered() as (mesh, app, url):
        session = (await mesh.create(task)).session_id
        async with connected(url, app.mint(session)) as client:
            names = [one.name for one in (await client.list_tools()).tools]
            answer = await client.call_tool("own", {})
    assert "own" in names
    assert json.loads(text(answer))["called"] == "own"


async def test_a_token_acts_in_its_own_session_alone() -> None:
    async with offered() as (mesh, app, url):
        sessions = [(await mesh.create()).session_id for _ in range(4)]

        async def work(session: str, times: int) -> None:
            async with connected(url, app.mint(session)) as client:
                for number in range(times):
                    assert text(await client.call_tool("note", {"text": session})) == str(
                        number + 1
                    )

        await asyncio.gather(*(work(each, n + 1) for n, each in enumerate(sessions)))
        rewards = [(await mesh.verify(each)).reward for each in sessions]
    assert rewards == [1.0, 2.0, 3.0, 4.0]


async def test_errors_of_tools_are_results_and_faults_are_errors_of_the_protocol() -> None:
    from mcp import MCPError

    async with offered() as (mesh, app, url):
        session = (await mesh.create()).session_id
        async with connected(url, app.mint(session)) as client:
            refused = await client.call_tool("refuse", {})
            unfit = await client.call_tool("note", {"txet": "a"})
            unknown = await client.call_tool("nothing", {})
            with pytest.raises(MCPError) as broken:
                await client.call_tool("break_down", {})
            after = await client.call_tool("note", {"text": "a"})
    assert refused.is_error
    assert text(refused) == "Not on a Sunday."
    assert unfit.is_error
    assert "text" in text(unfit)
    assert unknown.is_error
    assert "no tool 'nothing'" in text(unknown)
    assert broken.value.data["reason"] == "ENVIRONMENT_FAULT"
    assert "a secret of ours" not in str(broken.value)
    assert not after.is_error


async def test_images_and_the_end_of_the_episode_are_told() -> None:
    async with offered() as (mesh, app, url):
        session = (await mesh.create()).session_id
        async with connected(url, app.mint(session)) as client:
            picture = await client.call_tool("picture", {})
            left = await client.call_tool("leave", {})
    kinds = [block.type for block in picture.content]
    assert kinds == ["text", "image"]
    assert picture.content[1].data == _PIXEL  # type: ignore[union-attr]  # an image, as just seen
    assert left.meta is not None
    assert left.meta["gymmesh/done"] is True


async def test_without_a_good_token_nothing_is_told() -> None:
    async with offered() as (mesh, app, url):
        session = (await mesh.create()).session_id
        token = app.mint(session)
        assert (await status(url, f"Bearer {token}"))[0] == 200
        assert (await status(url, f"bearer  {token}"))[0] == 200
        for wrong in (
            None, "", "Bearer", f"Basic {token}", token, f"Bearer {token}x",
            f"Bearer {token[:-1]}", f"Bearer {session}", "Bearer x y",
        ):  # fmt: skip
            assert await status(url, wrong) == (401, ""), wrong


async def test_a_token_ends_with_its_session_or_when_it_is_taken_back() -> None:
    async with offered() as (mesh, app, url):
        session, other = [(await mesh.create()).session_id for _ in range(2)]
        token, second, kept = app.mint(session), app.mint(session), app.mint(other)
        app.revoke(second)
        assert (await status(url, f"Bearer {second}"))[0] == 401
        assert (await status(url, f"Bearer {token}"))[0] == 200
        await mesh.close(session)
        assert (await status(url, f"Bearer {token}"))[0] == 401
        assert (await status(url, f"Bearer {kept}"))[0] == 200
        with pytest.raises(MeshError) as caught:
            app.mint(session)
    assert caught.value.reason == errors_pb2.ERROR_REASON_SESSION_NOT_FOUND


async def test_nothing_but_posts_is_taken_so_that_no_stream_stays_open() -> None:
    import httpx2

    async with offered() as (mesh, app, url), httpx2.AsyncClient(timeout=20.0) as http:
        token = app.mint((await mesh.create()).session_id)
        headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
        for method in ("GET", "DELETE", "PUT"):
            assert (await http.request(method, url, headers=headers)).status_code == 405
            assert (await http.request(method, url)).status_code == 401


async def test_clients_of_the_older_protocol_are_served() -> None:
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    async with offered() as (mesh, app, url):
        token = app.mint((await mesh.create()).session_id)
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=20.0) as http,
            Client(streamable_http_client(url, http_client=http), mode="legacy") as client,
        ):
            assert "note" in {one.name for one in (await client.list_tools()).tools}
            assert text(await client.call_tool("note", {"text": "a"})) == "1"


async def test_an_open_connection_is_of_no_use_after_its_session() -> None:
    async with offered() as (mesh, app, url):
        session = (await mesh.create()).session_id
        async with connected(url, app.mint(session)) as client:
            await client.call_tool("note", {"text": "a"})
            await mesh.close(session)
            from mcp import MCPError

            with pytest.raises(MCPError):
                await client.call_tool("note", {"text": "b"})


async def _said(url: str, data: bytes) -> bytes:
    """What comes back until the server hangs up."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(data)
        async with asyncio.timeout(60.0):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("length", [b"content-length: 200", b"transfer-encoding: chunked"])
async def test_a_body_has_a_bound(monkeypatch: pytest.MonkeyPatch, length: bytes) -> None:
    from gymmesh_resource.mcp_server import tool_server

    monkeypatch.setattr(tool_server, "_MOST_BODY", 100)
    async with offered() as (mesh, app, url):
        token = app.mint((await mesh.create()).session_id).encode()
        head = b"POST /mcp HTTP/1.1\r\nhost: a\r\nauthorization: Bearer " + token
        body = b"c8\r\n" + b"a" * 200 + b"\r\n" if b"chunked" in length else b"a" * 200
        came = await _said(url, b"\r\n".join((head, length, b"", body)))
        assert came.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("authorization", [b"", b"authorization: Bearer "])
async def test_a_request_that_is_spoilt_while_it_is_answered(
    authorization: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with offered() as (mesh, app, url):
        if authorization:
            authorization += app.mint((await mesh.create()).session_id).encode()
        head = b"POST /mcp HTTP/1.1", b"host: a", authorization or b"a: b"
        after = b"0\r\n\r\n\x00\x00 / HTTP\r\n\r\n"
        for more, wrong in (
            (b"a: b", b"zz\r\n"),
            (b"a: b", b"2\r\n{}\r\nzz\r\n"),
            (b"a: b", after),
            (b"connection: close", after),
        ):
            data = b"\r\n".join((*head, more, b"transfer-encoding: chunked", b"", wrong))
            assert (await _said(url, data)).startswith(b"HTTP/1.1 4")
        assert (await status(url, None))[0] == 401
    for record in without_other_loops(caplog.records):
        assert record.exc_info is None, record.getMessage()


async def test_who_does_not_go_on_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from gymmesh_resource.mcp_server import serving, tool_server

    monkeypatch.setattr(tool_server, "_BODY_S", 0.1)
    monkeypatch.setattr(serving, "_SILENT_S", 0.1)
    async with offered() as (mesh, app, url):
        assert await _said(url, b"") == b""
        assert await _said(url, b"POST /mcp HTTP/1.1\r\nhost") == b""
        token = app.mint((await mesh.create()).session_id).encode()
        head = b"POST /mcp HTTP/1.1\r\nhost: a\r\nauthorization: Bearer " + token
        came = await _said(url, head + b"\r\ncontent-length: 200\r\n\r\n{")
        assert came.startswith(b"HTTP/1.1 408 ")


async def test_who_does_not_read_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from gymmesh_resource.mcp_server import serving

    monkeypatch.setattr(serving, "_UNREAD_S", 0.2)
    async with offered() as (mesh, app, url):
        token = app.mint((await mesh.create()).session_id).encode()
        # The answer to an unknown method has its name in it.
        body = b'{"jsonrpc": "2.0", "id": 1, "method": "' + b"a" * 3 * 2**20 + b'"}'
        head = b"POST /mcp HTTP/1.1\r\nhost: a\r\nauthorization: Bearer " + token
        form = b"content-type: application/json\r\naccept: application/json, text/event-stream"
        request = b"\r\n".join((head, form, b"content-length: %d" % len(body), b"", body))
        parts = urlsplit(url)
        _, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=2**10)
        writer.write(request * 20)
        try:
            async with asyncio.timeout(60.0):
                with pytest.raises(ConnectionError):
                    await writer.drain()
        finally:
            writer.transport.abort()
        assert (await status(url, None))[0] == 401


async def test_tokens_are_hard_to_guess_and_those_of_closed_sessions_are_forgotten() -> None:
    async with offered() as (mesh, app, url):
        one, two = [(await mesh.create()).session_id for _ in range(2)]
        minted = [app.mint(one) for _ in range(1000)]
        assert len(set(minted)) == 1000
        assert all(len(token) >= 43 for token in minted)
        assert not any(token in repr(dict(app._tokens)) for token in minted)
        async with connected(url, minted[0]) as client:
            await client.call_tool("note", {"text": "a"})
        assert len(app._facade._known) == 1
        kept = app.mint(two)
        await mesh.close(one)
        gc.collect()
        assert len(app._tokens) == 1
        assert not app._facade._known
        assert (await status(url, f"Bearer {minted[0]}"))[0] == 401
        assert (await status(url, f"Bearer {kept}"))[0] == 200
