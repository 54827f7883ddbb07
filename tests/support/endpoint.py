"""A real OpenAI-compatible HTTP endpoint on a free port that answers, or fails, as told.

    async with FakeEndpoint() as endpoint:
        endpoint.script = [status(500), text("4")]      # call by call, then endpoint.default
        …ModelConfig(backend="chat", url=endpoint.url)…
        assert endpoint.requests[-1].body["temperature"] == 0.7

It serves `POST /v1/responses` and `POST /v1/chat/completions`; `text`, `calls` and `answer` are
written in the words of whichever was asked, and streamed when the request says so. A reply may
also be a function of the request, so that an answer depends on the conversation. Azure's form of
the Responses API is served at `endpoint.root`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.ports import free_port

Json = dict[str, Any]

# As endpoints do, each answer gets an id of its own.
_NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class Seen:
    """A request that arrived. `body` is parsed; `api` is `responses` or `chat`."""

    api: str
    headers: Mapping[str, str]
    body: Json
    query: Mapping[str, str] = field(default_factory=dict)


Send = Callable[[web.Request, Seen], Awaitable[web.StreamResponse]]
Reply = Send | Callable[[Seen], Send]


def answer(
    content: str | None = None,
    calls: Sequence[tuple[str, str, str]] = (),
    *,
    reasoning: str | None = None,
    finish: str | None = None,
    usage: tuple[int, int] | None = (11, 7),
) -> Send:
    """An answer. calls: (call id, function name, arguments). finish: as Chat spells it.

    usage: input and output tokens, or None to leave the key out.
    """

    async def send(request: web.Request, seen: Seen) -> web.StreamResponse:
        build = _chat_document if seen.api == "chat" else _responses_document
        document = build(seen.body, content, calls, reasoning, finish, usage)
        if seen.body.get("stream"):
            return await chunks(events_of(document))(request, seen)
        return web.json_response(document)

    return send


def text(content: str, **more: Any) -> Send:
    """An answer of text alone."""
    return answer(content, **more)


def document(value: object) -> Send:
    """Any JSON with status 200, such as one of a wrong schema."""
    return raw(json.dumps(value).encode())


def raw(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Send:
    """These very bytes."""

    async def send(request: web.Request, seen: Seen) -> web.StreamResponse:
        return web.Response(
            body=body,
            status=status,
            headers={"Content-Type": "application/json", **(headers or {})},
        )

    return send


def status(
    code: int,
    *,
    message: str = "it went wrong",
    error_code: str | None = None,
    kind: str = "error",
    retry_after: str | None = None,
) -> Send:
    """An HTTP error with OpenAI's error body."""
    body = json.dumps({"error": {"message": message, "type": kind, "code": error_code}})
    return raw(body.encode(), code, {} if retry_after is None else {"Retry-After": retry_after})


def context_exceeded(limit: int = 8192) -> Send:
    """A conversation that is too long, as OpenAI and vLLM report it."""
    words = f"This model's maximum context length is {limit} tokens. However, you asked for more."
    return status(400, message=words, error_code="context_length_exceeded")


def broken_json() -> Send:
    """Half a JSON document, sent whole."""
    return raw(b'{"id": "resp_1", "output": [')


def short() -> Send:
    """Promises more bytes than it sends, and hangs up."""

    async def send(request: web.Request, seen: Seen) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Length": "1000", "Content-Type": "application/json"}
        )
        await response.prepare(request)
        await response.write(b'{"id": "resp_1", "object": "respo')
        if request.transport is not None:
            request.transport.close()
        return response

    return send


def hang() -> Send:
    """Reads the request and never answers."""

    async def send(request: web.Request, seen: Seen) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError("an event that nobody sets was set")

    return send


def drip(seconds: float = 0.05) -> Send:
    """Sends the headers, then one blank every `seconds` and never a document."""

    async def send(request: web.Request, seen: Seen) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(seconds)

    return send


def slow(seconds: float, then: Send) -> Send:
    """Another reply, `seconds` late."""

    async def send(request: web.Request, seen: Seen) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return await then(request, seen)

    return send


def gate(event: asyncio.Event, then: Send) -> Send:
    """Another reply, once the event is set."""

    async def send(request: web.Request, seen: Seen) -> web.StreamResponse:
        await event.wait()
        return await then(request, seen)

    return send


def reset(*, after_headers: bool = False) -> Send:
    """Breaks the connection: before the headers, or in the middle of the body."""

    async def send(request: web.Request, seen: Seen) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        if after_headers:
            await response.prepare(request)
            await response.write(b'{"id": "resp_1", ')
        if request.transport is not None:
            request.transport.abort()
        return response

    return send


def chunks(
    pieces: Sequence[bytes],
    then: str = "end",
    pause: float = 0.0,
    gate: asyncio.Event | None = None,
    hangs: asyncio.Event | None = None,
) -> Send:
    """A stream of these very bytes, a write for each, that then ends, hangs or breaks (`reset`).

    pause: seconds after each. gate: is waited for before the last one. hangs: is set once it
    hangs.
    """

    async def send(request: web.Request, seen: Seen) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for index, piece in enumerate(pieces):
            if gate is not None and index == len(pieces) - 1:
                await gate.wait()
            await response.write(piece)
            await asyncio.sleep(pause)
        if then == "hang":
            if hangs is not None:
                hangs.set()
            await asyncio.Event().wait()
        if then == "reset" and request.transport is not None:
            request.transport.abort()
        return response

    return send


def cut(
    after: int | None,
    then: str,
    gate: asyncio.Event | None = None,
    hangs: asyncio.Event | None = None,
    **said: Any,
) -> Reply:
    """A streamed answer of which only so many events come; see `answer` and `chunks`."""

    async def send(request: web.Request, seen: Seen) -> web.StreamResponse:
        build = _chat_document if seen.api == "chat" else _responses_document
        filled = {"calls": (), "reasoning": None, "finish": None, "usage": None, **said}
        made = events_of(build(seen.body, **filled))[:after]
        return await chunks(made, then, gate=gate, hangs=hangs)(request, seen)

    return send


def unstreamed(content: str) -> Send:
    """An answer of text, whole, whatever was asked."""

    async def send(request: web.Request, seen: Seen) -> web.StreamResponse:
        return await answer(content)(request, Seen(seen.api, seen.headers, {}))

    return send


def event(data: object) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def events_of(document: Json, size: int = 3) -> list[bytes]:
    """A whole answer as the events of a stream; `size`: characters in a delta."""
    if document["object"] == "response":
        return [event(one) for one in responses_events(document, size)]
    return [*(event(one) for one in chat_chunks(document, size)), b"data: [DONE]\n\n"]


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def chat_chunks(document: Json, size: int) -> list[Json]:
    """The chunks of a chat answer."""
    choice = document["choices"][0]
    message = choice["message"]
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    for key in ("reasoning_content", "content", "refusal"):
        deltas += [{key: piece} for piece in _pieces(message.get(key) or "", size)]
    for index, call in enumerate(message.get("tool_calls", [])):
        opened = {"name": call["function"]["name"], "arguments": ""}
        first = {"index": index, "id": call["id"], "type": "function", "function": opened}
        deltas.append({"tool_calls": [first]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            for piece in _pieces(call["function"]["arguments"], size)
        ]
    head = {key: document[key] for key in ("id", "created", "model")}
    head["object"] = "chat.completion.chunk"
    ends = [*((delta, None) for delta in deltas), ({}, choice["finish_reason"])]
    made: list[Json] = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        for delta, finish in ends
    ]
    if "usage" in document:
        made.append({**head, "choices": [], "usage": document["usage"]})
    return made


_PARTS = {
    "output_text": "response.output_text.delta",
    "reasoning_text": "response.reasoning_text.delta",
    "refusal": "response.refusal.delta",
}


def responses_events(document: Json, size: int) -> list[Json]:
    """The events of a Responses answer."""
    begun = {**document, "status": "in_progress", "output": [], "usage": None}
    made: list[Json] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(document["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        empty = {**item, "arguments": ""} if "arguments" in item else {**item, "content": []}
        made.append({"type": "response.output_item.added", "output_index": index, "item": empty})
        for number, part in enumerate(item.get("content", [])):
            made += [
                {"type": _PARTS[part["type"]], **place, "content_index": number, "delta": piece}
                for piece in _pieces(part.get("text", part.get("refusal", "")), size)
            ]
        made += [
            {"type": "response.function_call_arguments.delta", **place, "delta": piece}
            for piece in _pieces(item.get("arguments", ""), size)
        ]
        made.append({"type": "response.output_item.done", "output_index": index, "item": item})
    made.append({"type": f"response.{document['status']}", "response": document})
    return [{**one, "sequence_number": number} for number, one in enumerate(made)]


@dataclass
class FakeEndpoint:
    """The server; an async context manager. `script` is used up first, then `default` answers.

    `arrived` is set once a request came; `idle` while none is being answered, after the first.
    """

    script: list[Reply] = field(default_factory=list)
    default: Reply = field(default_factory=lambda: text("ok"))
    requests: list[Seen] = field(default_factory=list)
    url: str = ""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    running: int = 0
    peak: int = 0
    _runner: web.AppRunner | None = None

    async def __aenter__(self) -> FakeEndpoint:
        await self.start()
        return self

    async def start(self, port: int = 0) -> None:
        """Serves, again after `stop`; 0 is any free port, which nobody else takes meanwhile."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/responses", self._responses)
        app.router.add_post("/openai/responses", self._responses)
        app.router.add_post("/v1/chat/completions", self._chat)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port or free_port())
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    @property
    def root(self) -> str:
        """The base URL without the version."""
        return self.url.removesuffix("/v1")

    async def stop(self) -> None:
        """Stops serving; the port then refuses connections."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        return await self._reply(request, "responses")

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._reply(request, "chat")

    async def _reply(self, request: web.Request, api: str) -> web.StreamResponse:
        body = json.loads(await request.read())
        seen = Seen(api, request.headers.copy(), body, dict(request.query))
        self.requests.append(seen)
        reply: Any = self.script.pop(0) if self.script else self.default
        self.arrived.set()
        self.idle.clear()
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            if not asyncio.iscoroutinefunction(reply):
                reply = reply(seen)
            # Writing to a connection that the client closed.
            with contextlib.suppress(ConnectionResetError):
                sent: web.StreamResponse = await reply(request, seen)
                return sent
            return web.Response()
        finally:
            self.running -= 1
            if not self.running:
                self.idle.set()


def _chat_document(
    body: Json,
    content: str | None,
    calls: Sequence[tuple[str, str, str]],
    reasoning: str | None,
    finish: str | None,
    usage: tuple[int, int] | None,
) -> Json:
    message: Json = {"role": "assistant", "content": content}
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in calls
        ]
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": finish or ("tool_calls" if calls else "stop"),
    }
    made: Json = {
        "id": f"chatcmpl-{next(_NUMBERS)}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": body.get("model", "fake"),
        "choices": [choice],
    }
    if usage is not None:
        made["usage"] = {
            "prompt_tokens": usage[0],
            "completion_tokens": usage[1],
            "total_tokens": sum(usage),
        }
    return made


def _responses_document(
    body: Json,
    content: str | None,
    calls: Sequence[tuple[str, str, str]],
    reasoning: str | None,
    finish: str | None,
    usage: tuple[int, int] | None,
) -> Json:
    output: list[Json] = []
    if reasoning is not None:
        part = {"type": "reasoning_text", "text": reasoning}
        output.append({"type": "reasoning", "id": "rs_1", "summary": [], "content": [part]})
    if content is not None:
        said = {"type": "output_text", "text": content, "annotations": []}
        message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        output.append({**message, "content": [said]})
    for call_id, name, arguments in calls:
        call = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id}
        output.append({**call, "name": name, "arguments": arguments, "status": "completed"})
    cut = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(finish or "")
    made: Json = {
        "id": f"resp_{next(_NUMBERS)}",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": cut} if cut else None,
        "model": body.get("model", "fake"),
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": body.get("tools", []),
    }
    if usage is not None:
        made["usage"] = {
            "input_tokens": usage[0],
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": usage[1],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": sum(usage),
        }
    return made
