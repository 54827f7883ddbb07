"""Calling an application in this process, as HTTP would have called it."""

from __future__ import annotations

import asyncio
import json

import pytest

from gymmesh_model.backends.vllm import in_process
from gymmesh_model.backends.vllm.in_process import AsgiMessage, InProcessTransport, Receive, Send
from gymmesh_model.transport import ConnectionLost, TooLarge


class Application:
    """Answers by the path; remembers what it was asked, and how its clients went."""

    def __init__(self) -> None:
        self.scope: AsgiMessage = {}
        self.body = b""
        self.left = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def __call__(self, scope: AsgiMessage, receive: Receive, send: Send) -> None:
        self.scope = scope
        message = await receive()
        assert message["more_body"] is False
        self.body = message["body"]
        await getattr(self, scope["path"].strip("/"))(receive, send)

    async def echo(self, receive: Receive, send: Send) -> None:
        headers = [(b"Content-Type", b"text/plain; charset=utf-8"), (b"X-More", b"yes")]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})

    async def stream(self, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number in range(3):
            await send({"type": "http.response.body", "body": b"%d" % number, "more_body": True})
        await send({"type": "http.response.body"})

    async def endless(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        assert (await receive())["type"] == "http.disconnect"
        self.left.set()

    async def deaf(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def fails(self, receive: Receive, send: Send) -> None:
        raise RuntimeError("before its answer")

    async def fails_later(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        raise RuntimeError("inside its answer")

    async def answers_and_fails(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 500})
        await send({"type": "http.response.body", "body": b"sorry"})
        raise RuntimeError("for the server's log")


@pytest.fixture
def application() -> Application:
    return Application()


@pytest.fixture
def transport(application: Application) -> InProcessTransport:
    return InProcessTransport(application, {"Content-Type": "application/json", "X-Key": "k"})


async def test_a_whole_answer(transport: InProcessTransport, application: Application) -> None:
    body = json.dumps({"a": 1}).encode()
    answer = await transport.post("http://anywhere/echo", body, {"X-Own": "o"})
    assert (answer.status, answer.body) == (201, body)
    assert answer.headers["x-more"] == answer.headers["X-More"] == "yes"
    assert answer.headers.get("X-MORE") == "yes"
    assert answer.headers.get("Retry-After") is None
    assert application.scope["method"] == "POST"
    assert application.scope["path"] == "/echo"
    assert dict(application.scope["headers"]) == {
        b"content-type": b"application/json",
        b"x-key": b"k",
        b"x-own": b"o",
    }


async def test_a_get(transport: InProcessTransport, application: Application) -> None:
    answer = await transport.get("http://anywhere/echo")
    assert (answer.body, application.scope["method"]) == (b"", "GET")


async def test_a_streamed_answer(transport: InProcessTransport) -> None:
    async with transport.stream("/stream", b"{}", None) as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        assert [piece async for piece in answer.pieces()] == [b"0", b"1", b"2"]
    async with transport.stream("/stream", b"{}", None) as answer:
        assert await answer.read() == b"012"


async def test_leaving_is_told_to_the_application(
    transport: InProcessTransport, application: Application
) -> None:
    async with transport.stream("/endless", b"{}", None) as answer:
        assert await anext(answer.pieces()) == b"x"
    assert application.left.is_set()


async def test_a_cancelled_call_leaves(
    transport: InProcessTransport, application: Application
) -> None:
    call = asyncio.ensure_future(transport.post("/endless", b"{}", None))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    async with asyncio.timeout(60):
        await application.left.wait()


async def test_one_that_does_not_listen_is_cancelled(
    transport: InProcessTransport, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_process, "_LEAVE_SECONDS", 0.05)
    async with transport.stream("/deaf", b"{}", None):
        pass
    async with asyncio.timeout(60):
        await application.cancelled.wait()


async def test_closing_ends_what_runs(
    transport: InProcessTransport, application: Application
) -> None:
    async with transport.stream("/deaf", b"{}", None) as answer:
        await transport.close()
        with pytest.raises(ConnectionLost):
            await answer.read()
    assert application.cancelled.is_set()


@pytest.mark.parametrize("path", ["/fails", "/fails_later"])
async def test_no_answer_is_a_lost_connection(transport: InProcessTransport, path: str) -> None:
    with pytest.raises(ConnectionLost, match="before the answer was complete"):
        await transport.post(path, b"{}", None)


async def test_an_answer_counts_whatever_follows(transport: InProcessTransport) -> None:
    answer = await transport.post("/answers_and_fails", b"{}", None)
    assert (answer.status, answer.body) == (500, b"sorry")


async def test_an_answer_has_a_bound(
    transport: InProcessTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_process, "MAX_BODY", 2)
    with pytest.raises(TooLarge):
        await transport.post("/stream", b"{}", None)
