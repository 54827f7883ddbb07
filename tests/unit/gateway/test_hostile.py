"""Programs that mean harm: floods, half requests, huge bodies, other rollouts' keys."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest

from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_agent.gateway import server as gateway_server
from gymmesh_agent.gateway.gateway import Gateway
from gymmesh_agent.gateway.keys import keys_in, new_key, redacted, split_path
from gymmesh_responses import text_of
from gymmesh_runtime.text import mask_secrets
from tests.unit.agent.servicers import says
from tests.unit.agent.streams import model_calls
from tests.unit.gateway.programs import chat, posting, run

_PATH = "/v1/chat/completions"


@asynccontextmanager
async def raw(
    gateway: Gateway, *lines: str
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which these lines of a request were sent."""
    host, _, port = gateway.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write("".join(f"{line}\r\n" for line in lines).encode())
    try:
        yield reader, writer
    finally:
        writer.close()


async def works(gateway: Gateway, text: str = "hi") -> None:
    async with posting(gateway, chat(("user", text))) as response:
        assert response.status == 200, await response.text()


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What came before the connection ended."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the running loop's time be that much later, until the test ends."""
    loop = asyncio.get_running_loop()
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + seconds)


async def test_half_requests_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(gateway: Gateway) -> None:
        async with raw(gateway) as (silent, _), raw(gateway, f"POST {_PATH} HTTP/1.1") as (half, _):
            await works(gateway, "first")  # connections are taken in order: both are there by now
            later(monkeypatch, gateway_server._IDLE_S + 1)
            async with asyncio.timeout(20):
                assert await ended(silent) == b""
                assert await ended(half) == b""
        await works(gateway, "second")

    assert len(model_calls(await run(program, says("x"), repeat=True))) == 2


async def test_a_slow_body_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(gateway: Gateway) -> None:
        head = (f"POST {_PATH} HTTP/1.1", f"Authorization: Bearer {gateway.key}", "Host: x")
        expects = ("Content-Length: 1000", "Expect: 100-continue", "", '{"model"')
        async with raw(gateway, *head, *expects) as (reader, _):
            assert b" 100 " in await reader.readline()  # it waits for the body
            assert await reader.readline() == b"\r\n"
            later(monkeypatch, gateway_server._BODY_S + 1)
            async with asyncio.timeout(30):
                status = await reader.readline()
            assert b" 4" in status or b" 5" in status
        await works(gateway)

    assert len(model_calls(await run(program, says("x")))) == 1


async def test_a_client_that_asks_before_it_sends_a_body() -> None:
    async def program(gateway: Gateway) -> None:
        body = json.dumps(chat(("user", "hi")))
        head = (f"POST {_PATH} HTTP/1.1", f"Authorization: Bearer {gateway.key}", "Host: x")
        expects = (f"Content-Length: {len(body)}", "Expect: 100-continue", "Connection: close", "")
        async with asyncio.timeout(30), raw(gateway, *head, *expects) as (reader, writer):
            assert b" 100 " in await reader.readline()
            assert await reader.readline() == b"\r\n"
            writer.write(body.encode())
            assert b" 200 " in await reader.readline()
            assert b'"x"' in await reader.read()
        other = (head[0], "Authorization: Bearer sk-gymmesh-wrong", head[2], *expects)
        async with asyncio.timeout(30), raw(gateway, *other) as (reader, _):
            assert b" 401 " in await reader.readline()  # and no body is asked for

    assert len(model_calls(await run(program, says("x")))) == 1


async def test_a_flood_of_connections_keeps_nobody_out() -> None:
    async def program(gateway: Gateway) -> None:
        async with aiohttp.ClientSession() as session:
            headers = {"Authorization": f"Bearer {gateway.key}"}
            url = gateway.url + _PATH
            async with session.post(url, json=chat(("user", "1")), headers=headers) as response:
                assert response.status == 200
            flood = [raw(gateway, f"POST {_PATH} HTTP/1.1") for _ in range(200)]
            for one in flood:
                await one.__aenter__()
            # The connection that showed its key, and a new one.
            async with session.post(url, json=chat(("user", "2")), headers=headers) as response:
                assert response.status == 200
            await works(gateway, "3")
            for one in flood:
                await one.__aexit__(None, None, None)

    assert len(model_calls(await run(program, says("x"), repeat=True, connections=40))) == 3


async def test_a_rollout_has_few_connections() -> None:
    may_answer = asyncio.Event()

    async def slow(_: object) -> object:
        await may_answer.wait()
        return says("x")

    async def program(gateway: Gateway) -> None:
        async with asyncio.TaskGroup() as group:
            answered = [group.create_task(works(gateway, str(n))) for n in range(2)]
            while gateway._session.connections.answering < 2:  # noqa: ASYNC110 (no event for it)
                await asyncio.sleep(0.005)
            async with posting(gateway, chat(("user", "3"))) as response:
                assert response.status in (429, 503)
            may_answer.set()
        assert len(answered) == 2
        await works(gateway)

    events = await run(program, slow, repeat=True, connections_per_rollout=2)
    assert len(model_calls(events)) == 3


async def test_connections_on_which_nothing_is_answered_keep_no_call_out() -> None:
    """Idle ones, and such whose requests do not arrive, with the rollout's own key."""
    may_answer = asyncio.Event()

    async def slow(request: model_pb2.CreateResponseRequest) -> responses_pb2.Response:
        if text_of(request.params.input[-1]) == "first":
            await may_answer.wait()
        return says("x")

    async def program(gateway: Gateway) -> None:
        keyed = (f"Authorization: Bearer {gateway.key}", "Host: x")
        models = ("GET /v1/models HTTP/1.1", *keyed, "")
        half = (f"POST {_PATH} HTTP/1.1", *keyed, "Content-Length: 1000", "", '{"model"')
        first = asyncio.create_task(works(gateway, "first"))
        while not gateway._session.connections.answering:  # noqa: ASYNC110 (no event for it)
            await asyncio.sleep(0.005)
        async with AsyncExitStack() as stack:
            for number in range(100):
                lines = half if number % 2 else models
                reader, _ = await stack.enter_async_context(raw(gateway, *lines))
                if lines is models:
                    assert b" 200 " in await reader.readline()
            await works(gateway, "second")
            may_answer.set()
            await first  # the oldest, and yet it was kept

    async with asyncio.timeout(60):
        events = await run(program, slow, repeat=True, connections_per_rollout=8)
    assert len(model_calls(events)) == 2


async def test_a_wrong_key_keeps_no_connection() -> None:
    async def program(gateway: Gateway) -> None:
        async with (
            asyncio.timeout(30),
            raw(
                gateway, "GET /v1/models HTTP/1.1", "Host: x", "Authorization: Bearer wrong", ""
            ) as (reader, _),
        ):
            assert b" 401 " in await ended(reader)

    await run(program, says("x"))


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_of_100_megabytes_is_refused(announced: bool) -> None:
    async def pieces() -> AsyncGenerator[bytes]:
        for _ in range(100):
            yield b" " * 1_000_000

    async def program(gateway: Gateway) -> None:
        headers = {"Authorization": f"Bearer {gateway.key}"}
        if announced:
            headers["Content-Length"] = "100000000"
        async with aiohttp.ClientSession() as session:
            try:
                async with session.post(
                    gateway.url + _PATH, data=pieces(), headers=headers
                ) as response:
                    assert response.status == 413
            except aiohttp.ClientConnectionError:
                pass  # it was closed while the client still sent
        await works(gateway)

    assert len(model_calls(await run(program, says("x")))) == 1


async def test_a_body_that_unpacks_to_more_than_is_allowed() -> None:
    async def program(gateway: Gateway) -> None:
        headers = {"Authorization": f"Bearer {gateway.key}", "Content-Encoding": "gzip"}
        bomb = gzip.compress(b" " * 100_000_000)
        async with (
            aiohttp.ClientSession() as session,
            session.post(gateway.url + _PATH, data=bomb, headers=headers) as response,
        ):
            assert response.status == 413
        await works(gateway)

    assert len(model_calls(await run(program, says("x")))) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"messages": [{"role": "user", "content": "x"}], "tools": 3}',
    ],
)
@pytest.mark.parametrize(
    "path",
    [_PATH, "/v1/responses", "/v1/messages", "/v1beta/models/m:generateContent"],
)
async def test_bodies_that_are_none_are_refused(path: str, body: bytes) -> None:
    async def program(gateway: Gateway) -> None:
        headers = {"Authorization": f"Bearer {gateway.key}", "Content-Type": "application/json"}
        async with (
            aiohttp.ClientSession() as session,
            session.post(gateway.url + path, data=body, headers=headers) as response,
        ):
            assert response.status == 400
            assert "error" in await response.json()

    events = await run(program, says("x"))
    assert events[-1].HasField("completed")


async def test_nothing_is_at_other_paths() -> None:
    async def program(gateway: Gateway) -> None:
        headers = {"Authorization": f"Bearer {gateway.key}"}
        async with aiohttp.ClientSession() as session:
            for path in ("/", "/v1/files", "/r/", f"/r/{gateway.key}", "/v1/../../etc/passwd"):
                async with session.get(gateway.url + path, headers=headers) as response:
                    assert response.status in (401, 404)
            upgrade = {**headers, "Upgrade": "websocket", "Connection": "Upgrade"}
            async with session.get(f"{gateway.url}/v1/responses", headers=upgrade) as response:
                assert response.status in (404, 405, 426)

    await run(program, says("x"))


async def test_what_is_not_http_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    async def program(gateway: Gateway) -> None:
        async with raw(gateway, "\x16\x03\x01 hello", f"key {gateway.key}", "", "") as (reader, _):
            assert b" 400 " in await reader.readline()
        async with raw(gateway, f"GET /r/{gateway.key}/v1/models HTTP/1.1", "Host: x", "bad", ""):
            pass
        await works(gateway)
        assert gateway.key not in caplog.text

    with caplog.at_level(logging.DEBUG):
        await run(program, says("x"))
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


async def test_a_rollout_asks_only_so_much_at_a_time() -> None:
    async def slow(_: object) -> object:
        await asyncio.Event().wait()
        return None

    async def program(gateway: Gateway) -> None:
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(works(gateway, str(n))) for n in range(2)]
            while gateway._session.connections.answering < 2:  # noqa: ASYNC110 (the server has no event for it)
                await asyncio.sleep(0.005)
            async with posting(gateway, chat(("user", "3"))) as response:
                assert response.status in (429, 503)
            for task in waiting:
                task.cancel()

    events = await run(program, slow, repeat=True, calls_per_rollout=2)
    assert events[-1].HasField("completed")


def test_where_a_key_may_be() -> None:
    assert split_path("/r/K/v1/responses") == ("K", "/v1/responses")
    assert split_path("/v1/responses") == ("", "/v1/responses")
    assert split_path("/r/K") == ("K", "")
    assert keys_in({"authorization": "Bearer  K "}, {}) == ("K",)
    assert keys_in({"x-api-key": "A", "x-goog-api-key": "B"}, {"key": "C"}) == ("A", "B", "C")
    assert keys_in({"authorization": "Basic K"}, {}) == ()


def test_keys_are_long_and_masked() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    for key in keys:
        assert len(key) >= 40
        assert redacted(f"OPENAI_API_KEY={key} /r/{key}/v1".encode()).count(b"***") == 2
        assert key not in mask_secrets(f"GET /r/{key}/v1/models")
