"""Requests' heads: what is sent, and what never is."""

from __future__ import annotations

import asyncio

import pytest

from gymmesh_model.transport.target import HttpTarget
from tests.unit.model.transport.raw_server import HELLO, Link, serving, transport


async def sent_head(path: str, user: str = "", **headers: str) -> list[str]:
    """The lines of a request's head, as a server gets them."""
    heads: list[str] = []

    async def script(link: Link) -> None:
        head, _ = await link.request()
        heads.append(head[:-4].decode("latin-1"))
        await link.send(HELLO)

    async with asyncio.timeout(60), serving(script) as server, transport(headers) as made:
        base = server.url.removesuffix("/v1").replace("//", f"//{user}")
        await made.post(base + path, b"{}", {"Y": "z"})
    return heads[0].split("\r\n")


async def test_a_whole_head() -> None:
    lines = await sent_head("/v1/x?a=b c", **{"X-A": " b "})
    assert lines[0] == "POST /v1/x?a=b+c HTTP/1.1"
    assert lines[1].startswith("Host: 127.0.0.1:")
    for line in ("Accept-Encoding: identity", "X-A: b", "Y: z", "Content-Length: 2"):
        assert line in lines


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("", "POST / HTTP/1.1"),
        ("/a b\u00e4%20?q=\u00e4 x", "POST /a%20b%C3%A4%20?q=%C3%A4+x HTTP/1.1"),
        ("/a%2Fb/c:d@e", "POST /a%2Fb/c:d@e HTTP/1.1"),
        ("/openai/deployments/x?api-version=2024-01", None),
    ],
)
async def test_a_path_cannot_end_the_line(path: str, line: str | None) -> None:
    assert (await sent_head(path))[0] == (line or f"POST {path} HTTP/1.1")


async def test_a_user_in_the_url_becomes_basic_authentication() -> None:
    lines = await sent_head("/", "us%40er:pa%3Ass@")
    assert "Authorization: Basic dXNAZXI6cGE6c3M=" in lines
    assert not any("pa%3A" in line for line in lines)
    own = await sent_head("/", "user:pass@", authorization="Bearer t")
    assert [line for line in own if "uthorization" in line] == ["authorization: Bearer t"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X", "secret\r\nY: b"),
        ("X", "secret\n"),
        ("X", "secret\0"),
        ("X", "secret\x7f"),
        ("X", "secret€"),
        ("X Y", "secret"),
        ("", "secret"),
        ("X:", "secret"),
        ("Content-Length", "5"),
        ("transfer-encoding", "chunked"),
        ("Host", "secret"),
    ],
)
def test_a_header_cannot_become_two(name: str, value: str) -> None:
    target = HttpTarget("http://h/", {})
    for make in (
        lambda: HttpTarget("http://h/", {name: value}),
        lambda: target.headers({name: value}),
    ):
        with pytest.raises(ValueError, match="header") as caught:
            make()
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["ftp://h/", "h/", "http://", "http:///v1", "http://a b/", "http://h\\x/", "http://h:x/"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="the URL"):
        HttpTarget(url, {})


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://bücher.example/", "xn--bcher-kva.example"),
        ("http://[::1]:8000/v1", "::1"),
        ("https://H", "h"),
    ],
)
def test_hosts(url: str, host: str) -> None:
    assert HttpTarget(url, {}).url.raw_host == host
