"""Endpoints that send answers twice: every call gets its own answer. Connections that are kept."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest

from gymmesh_model import ModelConfig
from gymmesh_responses import text_of
from tests.integration.test_model_service import KEY, ask, needs_its_package, request, serving
from tests.unit.model.transport import raw_server
from tests.unit.model.transport.raw_server import Link

CALLS, AT_A_TIME, EVERY = 240, 6, 9


def document(api: str, said: str, number: int) -> dict[str, Any]:
    if api == "chat":
        message = {"role": "assistant", "content": said}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {"id": f"c{number}", "object": "chat.completion", "model": "m", "choices": [choice]}
    part = {"type": "output_text", "text": said, "annotations": []}
    item: dict[str, Any] = {
        "type": "message",
        "id": f"m{number}",
        "role": "assistant",
        "status": "completed",
    }
    item["content"] = [part]
    return {"id": f"r{number}", "object": "response", "status": "completed", "output": [item]}


def doubling(api: str) -> raw_server.Script:
    """Answers each question with its own words, every so manieth answer twice."""
    numbers = itertools.count(1)

    async def script(link: Link) -> None:
        while True:
            _, body = await link.request()
            asked = json.loads(body)
            last = asked["messages" if api == "chat" else "input"][-1]["content"]
            said = last if isinstance(last, str) else last[0]["text"]
            number = next(numbers)
            answer = raw_server.whole(json.dumps(document(api, said, number)).encode())
            await link.send(answer * (1 if number % EVERY else 2))

    return script


async def streaming(link: Link) -> None:
    """Answers each question by a stream, whose end comes a little after its last event."""
    chunk = {"id": "c", "object": "chat.completion.chunk", "model": "m"}
    events = b"".join(
        b"data: %b\n\n" % json.dumps({**chunk, "choices": [choice]}).encode()
        for choice in (
            {"index": 0, "delta": {"content": "four"}, "finish_reason": None},
            {"index": 0, "delta": {}, "finish_reason": "stop"},
        )
    )
    body = events + b"data: [DONE]\n\n"
    while True:
        await link.request()
        head = b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        await link.send(raw_server.OK + head + b"%x\r\n%b\r\n" % (len(body), body))
        await link.send(b"0\r\n\r\n")


async def test_calls_that_can_be_aborted_share_a_connection() -> None:
    """`keep_aborted` makes them streams."""
    async with raw_server.serving(streaming) as server:
        config = ModelConfig(
            backend="chat", url=server.url, model="m", options={"keep_aborted": True}
        )
        async with serving(config) as service:
            for number in range(10):
                answer = await ask(service, request(request_id=f"r{number}"))
                assert text_of(answer.response.output[0]) == "four"
                for _ in range(100):  # the loop reads what has come
                    await asyncio.sleep(0)
        assert len(server.links) == 1


@pytest.mark.parametrize("path", ["chat", "responses", "openai", "proxied"])
async def test_no_call_gets_the_answer_to_another(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_its_package(path)
    api = "chat" if path in ("chat", "proxied") else "responses"
    async with raw_server.serving(doubling(api)) as server:
        url = server.url
        if path == "proxied":
            monkeypatch.setenv("http_proxy", url.removesuffix("/v1"))
            monkeypatch.delenv("no_proxy", raising=False)
            monkeypatch.delenv("NO_PROXY", raising=False)
            url = "http://endpoint.invalid/v1"
        backend: Any = "openai" if path == "openai" else api
        config = ModelConfig(backend=backend, url=url, model="m", api_key=KEY, max_retries=0)
        async with serving(config) as service:
            numbers = iter(range(CALLS))

            async def work() -> None:
                for number in numbers:
                    content = f"question {number}"
                    asked = request({"input": [{"role": "user", "content": content}]})
                    answer = await ask(service, asked)
                    assert text_of(answer.response.output[0]) == content

            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                for _ in range(AT_A_TIME):
                    group.create_task(work())
            assert next(numbers, None) is None
