"""OpenAI's own library reads what the gateway writes, and its echo names the recorded items."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gymmesh_agent.gateway.dialects import DIALECTS, SeenRequests, route
from gymmesh_agent.gateway.minted import answers_minted, minted_of
from gymmesh_agent.gateway.request import GatewayRequest, Refusal, RefusalKind
from tests.support.optional import require
from tests.unit.gateway_dialects.answers import answer_of, call, message, reasoning

Json = dict[str, Any]

require(
    importlib.util.find_spec("openai") is not None, "the openai package", "install gymmesh[openai]"
)

OUTPUT = [reasoning("hm"), message("I look.", "x" * 10_000), call("bash", '{"a": 1}')]
USAGE = {"input_tokens": 10, "output_tokens": 6, "total_tokens": 16}


class Endpoint:
    """Answers every request with the same answer; the requests are kept.

    Attributes:
        requests: what was read.
        refusal: given in the place of the answer.
        client: the library's client, which calls it.
    """

    def __init__(self) -> None:
        self.requests: list[GatewayRequest] = []
        self.refusal: Refusal | None = None
        self.client: Any = None

    async def answer(self, request: web.Request) -> web.Response:
        headers = {key.lower(): value for key, value in request.headers.items()}
        found = route(request.method, request.path, request.query, headers)
        assert not isinstance(found, Refusal)
        dialect = DIALECTS[found.dialect]
        if request.method == "GET":
            return _json(dialect.write_models(["m"], 1))
        read = dialect.read(found, headers, await request.read(), SeenRequests())
        assert isinstance(read, GatewayRequest), read
        self.requests.append(read)
        if self.refusal is not None:
            reply = dialect.write_refusal(self.refusal)
            return _json(reply.body, reply.status, reply.headers)
        answer = answer_of(OUTPUT, usage=USAGE)
        if not read.stream:
            return _json(dialect.write(read, answer))
        stream = dialect.keep_alive + b"".join(dialect.write_stream(read, answer))
        return web.Response(body=stream, content_type="text/event-stream")


def _json(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    """An endpoint on the loopback."""
    made, app = Endpoint(), web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    library = importlib.import_module("openai")
    async with TestServer(app) as server:
        url = str(server.make_url("/v1"))
        async with library.AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as made.client:
            yield made


@pytest.mark.parametrize("stream", [False, True])
async def test_chat(endpoint: Endpoint, stream: bool) -> None:
    client = endpoint.client
    tools = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
    messages: list[Any] = [{"role": "user", "content": "hi"}]
    asked = {"model": "m", "messages": messages, "tools": tools}
    if stream:
        async with client.chat.completions.stream(
            **asked, stream_options={"include_usage": True}
        ) as events:
            completion = await events.get_final_completion()
    else:
        completion = await client.chat.completions.create(**asked)
    said = completion.choices[0].message
    assert completion.choices[0].finish_reason == "tool_calls"
    assert said.content == "I look." + "x" * 10_000
    assert said.tool_calls[0].function.arguments == '{"a": 1}'
    assert completion.usage.total_tokens == 16
    messages += [
        said.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "ok"},
    ]
    await client.chat.completions.create(**asked)
    _, _, _, sent, answered = endpoint.requests[-1].items
    assert minted_of(sent) == answers_minted(answered)
    assert minted_of(sent) is not None


@pytest.mark.parametrize("stream", [False, True])
async def test_responses(endpoint: Endpoint, stream: bool) -> None:
    client = endpoint.client
    tools = [{"type": "function", "name": "bash", "parameters": {"type": "object"}, "strict": None}]
    history: list[Any] = [{"role": "user", "content": "hi"}]
    asked = {"model": "m", "input": history, "tools": tools}
    if stream:
        async with client.responses.stream(**asked) as events:
            response = await events.get_final_response()
    else:
        response = await client.responses.create(**asked)
    assert response.status == "completed"
    assert response.output_text == "I look." + "x" * 10_000
    assert response.output[2].arguments == '{"a": 1}'
    assert response.usage.output_tokens == 6
    history += [item.model_dump(exclude_none=True) for item in response.output]
    history.append(
        {"type": "function_call_output", "call_id": response.output[2].call_id, "output": "ok"}
    )
    await client.responses.create(**asked)
    items = endpoint.requests[-1].items[1:]
    assert [one.output if (one := minted_of(item)) else None for item in items] == [0, 1, 2, None]
    assert answers_minted(items[3]) == minted_of(items[2])


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (RefusalKind.STOP, "BadRequestError"),
        (RefusalKind.CONTEXT_LENGTH, "BadRequestError"),
        (RefusalKind.UNAUTHORIZED, "AuthenticationError"),
        (RefusalKind.NOT_FOUND, "NotFoundError"),
        (RefusalKind.AGAIN, "InternalServerError"),
    ],
)
async def test_refusals(endpoint: Endpoint, kind: RefusalKind, error: str) -> None:
    endpoint.refusal = Refusal(kind, "It is over.")
    raised = getattr(importlib.import_module("openai"), error)
    with pytest.raises(raised, match="It is over"):
        await endpoint.client.responses.create(model="m", input="hi")


async def test_models(endpoint: Endpoint) -> None:
    assert [model.id async for model in endpoint.client.models.list()] == ["m"]


async def test_the_documents_have_what_the_types_ask_for(endpoint: Endpoint) -> None:
    """The library reads anything; its types say what is missing."""
    types = importlib.import_module("openai.types.responses")
    adapter = importlib.import_module("pydantic").TypeAdapter(types.ResponseStreamEvent)
    await endpoint.client.responses.create(model="m", input="hi")
    answer = answer_of(OUTPUT, usage=USAGE)
    for event in DIALECTS["responses"].write_stream(endpoint.requests[0], answer):
        document = json.loads(event.split(b"data: ", 1)[1])
        if "response" in document and document["response"]["usage"]:
            # Only later versions of the API have it.
            document["response"]["usage"]["input_tokens_details"].setdefault(
                "cache_write_tokens", 0
            )
        adapter.validate_python(document)
