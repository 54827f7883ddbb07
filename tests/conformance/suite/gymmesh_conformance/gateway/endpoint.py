"""An endpoint that answers by a script: the model of a gateway that calls one.

script = Script()
async with scripted_endpoint(script) as url:    # http://127.0.0.1:PORT/v1
    …                                           # have the gateway under test call it

It serves Chat Completions with tokens as vLLM gives them; `required_prefix_token_ids` takes the
place of all up to the last answer, as in NeMo RL's engines. For gateways that pass requests on as
they came it serves Responses and Anthropic's Messages, without tokens.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

from aiohttp import web

from gymmesh_conformance.gateway.adapter import SampledTokens, Script, WrittenAnswer
from gymmesh_conformance.gateway.answers import (
    chat_document,
    chat_message,
    chat_stream,
    messages_document,
    messages_stream,
    responses_document,
    responses_stream,
)
from gymmesh_conformance.gateway.toy_tokens import logprobs_of, output_ids, prompt_ids

_MAX_BODY_BYTES: Final = 64_000_000
_Json: TypeAlias = dict[str, Any]
_Native: TypeAlias = tuple[
    Callable[[Mapping[str, Any], WrittenAnswer, int], _Json], Callable[[_Json], list[str]]
]
_NATIVE: Final[Mapping[str, _Native]] = {
    "/v1/responses": (responses_document, responses_stream),
    "/v1/messages": (messages_document, messages_stream),
}


@asynccontextmanager
async def scripted_endpoint(script: Script, host: str = "127.0.0.1") -> AsyncIterator[str]:
    """Serve the APIs, whole or streamed, at a free port; the address for `base_url`."""

    async def complete(request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        message = chat_message(await script.next_answer(), len(script.sampled))
        prefix = asked.get("required_prefix_token_ids") or ()
        prompt = prompt_ids(asked["messages"], asked.get("tools") or (), prefix)
        output = output_ids(message)
        sampled = SampledTokens(prompt, output, logprobs_of(output, len(script.sampled)))
        script.sampled.append(sampled)
        document = chat_document(asked, message, sampled)
        return await _sent(request, asked, document, chat_stream)

    async def native(request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        make, stream = _NATIVE[request.path]
        answer = await script.next_answer()
        return await _sent(request, asked, make(asked, answer, script.asked), stream)

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "m", "object": "model"}]})

    application = web.Application(client_max_size=_MAX_BODY_BYTES)
    application.router.add_post("/v1/chat/completions", complete)
    for path in _NATIVE:
        application.router.add_post(path, native)
    application.router.add_get("/v1/models", models)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, 0).start()
        port = runner.addresses[0][1]
        yield f"http://{host}:{port}/v1"
    finally:
        await runner.cleanup()


async def _sent(
    request: web.Request,
    asked: Mapping[str, Any],
    document: _Json,
    stream: Callable[[_Json], list[str]],
) -> web.StreamResponse:
    if not asked.get("stream"):
        return web.json_response(document)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for event in stream(document):
        await response.write(event.encode())
    return response
