"""A server of Anthropic's and Gemini's APIs, and a model service before it."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from gymmesh.model.v1 import model_pb2
from gymmesh_model import ModelConfig, ModelService
from gymmesh_responses import params_from_json, response_to_json
from gymmesh_runtime.config import Secret
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.peers import PeerDirectory

BOUND_S = 120.0
PNG = base64.b64encode(b"\x89PNG tiny").decode()
TOOL = {
    "type": "function",
    "name": "add",
    "description": "adds",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    "strict": False,
}


class Endpoint:
    """Answers with the next of `answers`: a status and a document, or a list of events."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: list[Any] = []
        self.requests: list[tuple[str, Mapping[str, str], Any]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.path_qs, request.headers, await request.json()))
        answer = self.answers.pop(0)
        if isinstance(answer, tuple):
            return web.json_response(answer[1], status=answer[0])
        if isinstance(answer, dict):
            return web.json_response(answer)
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        for event in answer:
            data = json.dumps(event, ensure_ascii=False).encode()
            for place in range(0, len(data), 7):  # cut anywhere
                await stream.write((b"data: " if not place else b"") + data[place : place + 7])
            await stream.write(b"\r\n\r\n")
        return stream


@asynccontextmanager
async def serving(endpoint: Endpoint, backend: str, **options: Any) -> AsyncIterator[ModelService]:
    config = ModelConfig(
        backend=backend,
        url=endpoint.url,
        api_key=Secret("key-1"),
        model="m-1",
        max_retries=0,
        options=options,
    )
    service = ModelService(config, "policy", "policy-0")
    await service.open(PeerDirectory())
    try:
        yield service
    finally:
        await service.close()


async def ask(service: ModelService, **params: Any) -> Any:
    asked = model_pb2.CreateResponseRequest(params=params_from_json({"input": "hi", **params}))
    async with asyncio.timeout(BOUND_S):
        reply = await service.CreateResponse(asked, CallContext("CreateResponse"))
    return json.loads(response_to_json(reply.response))


async def streamed(service: ModelService, **params: Any) -> tuple[list[tuple[int, str, str]], Any]:
    call = model_pb2.CreateResponseRequest(params=params_from_json({"input": "hi", **params}))
    request = model_pb2.StreamResponseRequest(call=call)
    deltas: list[tuple[int, str, str]] = []
    response: Any = None
    async with asyncio.timeout(BOUND_S):
        async for frame in service.StreamResponse(request, CallContext("StreamResponse")):
            if frame.HasField("completed"):
                response = json.loads(response_to_json(frame.completed.response))
            else:
                kind = str(frame.delta.WhichOneof("delta"))
                piece, place = getattr(frame.delta, kind).decode(), frame.delta.output_index
                # How much comes at once is the service's affair.
                if deltas and deltas[-1][:2] == (place, kind):
                    piece = deltas.pop()[2] + piece
                deltas.append((place, kind, piece))
    return deltas, response


def shape(response: Any) -> list[Any]:
    """The output without ids and statuses."""
    dropped = ("id", "status", "annotations", "summary")
    plain = []
    for item in response["output"]:
        made = {key: value for key, value in item.items() if key not in dropped}
        if isinstance(made.get("content"), list):
            made["content"] = [
                {key: value for key, value in part.items() if key not in dropped}
                for part in made["content"]
            ]
        plain.append(made)
    return plain


def message(*content: Any, stop: str = "end_turn", **more: Any) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": list(content),
        "stop_reason": stop,
        "usage": {
            "input_tokens": 10,
            "cache_read_input_tokens": 5,
            "cache_creation_input_tokens": 2,
            "output_tokens": 7,
        },
        **more,
    }


def start(index: int, block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **piece: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **piece}}
