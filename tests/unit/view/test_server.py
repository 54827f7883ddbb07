"""The server over a real socket: who gets in, what it says, and that it changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from gymmesh_view import find_sources, viewing
from gymmesh_view.reading import to_json
from gymmesh_view.server import STATIC, static_file
from tests.view.rows import HOSTILE, hostile, write_scene

_LOOKS = 3_000


class Client:
    """A browser's side of it: a jar of cookies, and an address."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url
        self.base = url.partition("?")[0]

    async def get(self, path: str, **more: Any) -> tuple[int, Any]:
        async with self.session.get(self.base + path, **more) as response:
            body = await response.read()
            return response.status, orjson.loads(body) if body[:1] == b"{" else body

    async def enter(self) -> None:
        async with self.session.get(self.url) as response:
            assert response.status == 200
        for _ in range(_LOOKS):
            if (await self.get("api/status"))[1]["state"] == "ready":
                return
            await asyncio.sleep(0.02)
        raise AssertionError("the index was not made")


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    rows = write_scene(tmp_path / "rollouts.jsonl", 8)
    sources = find_sources([rows]).sources
    async with viewing(sources, index=tmp_path / "index.sqlite") as server:
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            yield Client(session, server.url)


@pytest.mark.parametrize("path", ["", "app.js", "api/status", "api/raw?key=x", "nothing"])
async def test_nobody_gets_in_without_the_token(client: Client, path: str) -> None:
    assert (await client.get(path))[0] == 403
    wrong = f"{path}{'&' if '?' in path else '?'}token=wrong"
    assert (await client.get(wrong))[0] == 403
    # Beside the page itself, even the right token opens nothing.
    if path:
        right = client.url.partition("token=")[2]
        assert (await client.get(f"api/status?token={right}"))[0] == 403


async def test_the_token_becomes_a_cookie_that_no_script_reads(client: Client) -> None:
    async with client.session.get(client.url, allow_redirects=False) as response:
        assert (response.status, response.headers["Location"]) == (303, "/")
        cookie = response.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert client.url.partition("token=")[2] not in cookie
    assert (await client.get("api/facets"))[0] == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example:80", 421),
        ("[::2]", 421),
        ("localhost:9", 200),
        ("127.0.0.1", 200),
        ("[::1]:9", 200),
    ],
)
async def test_only_loopback_is_served(client: Client, host: str, status: int) -> None:
    await client.enter()
    cookies = "; ".join(f"{one.key}={one.value}" for one in client.session.cookie_jar)
    headers = {"Host": host, "Cookie": cookies}
    said, _ = await client.get("api/facets", headers=headers)
    assert said == status


async def test_every_answer_forbids_what_the_page_does_not_need(client: Client) -> None:
    await client.enter()
    for path in ("", "app.js", "api/status", "api/rollout?key=none", "nothing"):
        async with client.session.get(client.base + path) as response:
            policy = response.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
            assert "unsafe" not in policy
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Cache-Control"] == "no-store"
            assert response.headers["Referrer-Policy"] == "no-referrer"


async def test_nothing_can_be_changed(client: Client) -> None:
    await client.enter()
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        async with client.session.request(method, client.base + "api/rollouts") as response:
            assert response.status == 405


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("api/rollouts?min_reward=x", "min_reward: must be a number"),
        ("api/rollouts?offset=-1", "offset: must be a whole number"),
        ("api/rollouts?sort=colour", "'colour' is not a column to sort by"),
        ("api/rollout", "key: is missing"),
        ("api/rollout?key=none", "there is no rollout 'none'"),
        ("api/rollout?key=1.2.3", "there is no rollout '1.2.3'"),
        ("api/rollout?key=99999999999999999999.0.0", "there is no rollout"),
        ("api/tokens?key=ro-shop-0-0&call=x", "call: must be a whole number"),
        ("api/count?text=" + "x" * 5000, "text: is longer than"),
    ],
)
async def test_wrong_questions_are_named(client: Client, path: str, said: str) -> None:
    await client.enter()
    status, answer = await client.get(path)
    assert status == 400
    assert said in answer["error"]


async def test_a_rollout_in_all_its_parts(client: Client) -> None:
    await client.enter()
    _, found = await client.get("api/rollout?key=ro-shop-4-2")
    kinds = [one["kind"] for one in found["items"]]
    assert kinds[:5] == ["message", "message", "reasoning", "call", "result"]
    call = found["items"][3]
    assert call["name"] == "add"
    assert call["parts"][0]["as"] == "json"
    assert [one["call"] for one in found["calls"]] == [0, 1, 2, 3]
    assert not any(one["fork"] for one in found["calls"])
    assert found["calls"][1]["shared"] == found["calls"][0]["prompt"] + 34
    # Numbers that a browser's cannot hold arrive as they are.
    assert "9007199254740993" in found["verification"]["evidence"]
    _, tokens = await client.get("api/tokens?key=ro-shop-4-2&call=1")
    assert (len(tokens["ids"]), len(tokens["logprobs"]), tokens["texts"]) == (34, 34, None)
    _, tokens = await client.get("api/tokens?key=ro-sums-1-0&call=0")
    assert "".join(tokens["texts"]).startswith("18 × 23 is ")


async def test_actors_and_forks(client: Client) -> None:
    await client.enter()
    _, found = await client.get("api/rollout?key=ro-debate-3-0")
    assert [one["name"] for one in found["actors"]] == ["critic", "writer"]
    assert found["actors"][1]["reward"] == 0.5
    assert found["forks"][0]["reason"] == "HISTORY_REWRITTEN"
    assert found["weights"] == [3, 4]


async def test_harm_stays_text(client: Client) -> None:
    await client.enter()
    _, found = await client.get(f"api/rollout?key={HOSTILE}")
    parts = found["items"][0]["parts"]
    assert [one["as"] for one in parts] == ["text", "note", "note", "note"]
    assert "does not show: image/svg+xml" in parts[1]["text"]
    assert "with the type png, but its bytes are not png" in parts[2]["text"]
    assert "does not fetch: https://example.com" in parts[3]["text"]
    broken = next(one for one in found["items"] if one.get("name") == "broken")
    assert broken["parts"][0]["invalid"]


async def test_a_row_as_it_stands_in_its_file(client: Client) -> None:
    await client.enter()
    async with client.session.get(client.base + f"api/raw?key={HOSTILE}") as response:
        assert response.content_type == "text/plain"
        assert (
            orjson.loads((await response.read()).replace(b"\\ud800", b"?"))["agent"]
            == next(hostile())["agent"]
        )


async def test_the_page_is_there(client: Client) -> None:
    await client.enter()
    for name, kind in STATIC.items():
        path = "" if name == "index.html" else name
        async with client.session.get(client.base + path) as response:
            assert response.headers["Content-Type"] == kind
            assert await response.read() == static_file(name)
    assert b"<script defer src=" in static_file("index.html")
    assert b"http" not in static_file("index.html").replace(b"http-equiv", b"")


def test_what_is_no_number_is_null() -> None:
    value = {"big": 2**70, "nan": float("nan"), "list": [float("inf"), "\ud800"]}
    assert b"null" in to_json(value)
    assert str(2**70).encode() in to_json(value)


NO_HTTP = [
    b"GARBAGE\r\n\r\n",
    b"\x16\x03\x01\x02\x00",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
    b"GET http://[::1 HTTP/1.1\r\nHost: [\r\n\r\n",
    b"CONNECT a HTTP/1.1\r\n\r\n",
]


@pytest.mark.parametrize("request_", NO_HTTP, ids=range(len(NO_HTTP)))
async def test_a_request_that_is_none_leaves_no_traceback(
    client: Client, request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    port = int(client.base.split(":")[2].strip("/"))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request_)
    with contextlib.suppress(ConnectionError):
        await writer.drain()
        await reader.read()
    writer.close()
    await client.enter()
    assert not [one for one in caplog.records if one.exc_info]


async def test_a_fault_of_ours_is_one_line(
    client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.enter()
    monkeypatch.setattr("gymmesh_view.server.parse_sort", lambda text: 1 // 0)
    status, said = await client.get("api/rollouts")
    assert (status, said) == (500, b"This cannot be shown (ZeroDivisionError).\n")
    lines = [one for one in caplog.records if one.levelname == "ERROR"]
    assert [one.getMessage() for one in lines] == [
        "the request /api/rollouts failed: ZeroDivisionError"
    ]
    assert not lines[0].exc_info
