"""A backend in a file of its own, for an API that no other backend speaks, behind a real server.

The file below the line is all that a contributor writes: no list elsewhere has its name.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web

from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_mesh import model_checks
from gymmesh_model import ModelConfig, ModelService
from gymmesh_model.backends.base import Backend, BackendCall, Features
from gymmesh_model.backends.endpoint.http import HttpEndpoint, sendable
from gymmesh_model.errors import options_of, unsupported
from gymmesh_responses import dumps, loads, params_from_json, response_from_json, text_of
from gymmesh_runtime.config import Secret
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from tests.support.ports import free_port

BACKEND = f"{__name__}:MessagesBackend"
BOUND_S = 120.0


# --- the backend ------------------------------------------------------------------------------


class MessagesOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: str = "2023-06-01"


class MessagesBackend(Backend):
    """`POST {url}/messages`: texts alone, the key in a header of its own."""

    kind = "messages"
    capabilities = model_pb2.ModelCapabilities(abort=True)

    def __init__(self, name: str, config: ModelConfig) -> None:
        options = options_of(name, config.options, MessagesOptions)
        self._headers = {"api-version": options.version}
        self._http = HttpEndpoint(name, config, self)
        self.features = Features(pool=self._http.pool)
        self.endpoint_model = config.model or ""

    @classmethod
    def auth_headers(cls, api_key: str) -> Mapping[str, str]:
        return {"x-api-key": api_key}

    async def open(self) -> None:
        await self._http.open()

    async def close(self) -> None:
        await self._http.close()

    async def create(self, call: BackendCall) -> responses_pb2.Response:
        params = call.params
        if params.get("tools"):
            raise unsupported("tools", "this endpoint has none")
        said = params["input"]
        messages = [{"role": "user", "content": said}] if isinstance(said, str) else said
        limit = params.get("max_output_tokens") or 1024
        body = {"model": params.get("model"), "max_tokens": limit, "messages": messages}
        return await self._http.post(
            "/messages",
            sendable(lambda: dumps(body)),
            call.timeout,
            _response,
            self._headers,
            key=call.rollout_id,
            log=call.retries,
        )


def _response(raw: bytes) -> responses_pb2.Response:
    answer: Any = loads(raw)
    content = [{**part, "type": "output_text", "annotations": []} for part in answer["content"]]
    message = {"type": "message", "id": "msg_1", "role": "assistant", "content": content}
    document = {"id": answer["id"], "object": "response", "status": "completed"}
    return response_from_json({**document, "model": answer["model"], "output": [message]})


# --- the endpoint, and what is tried ----------------------------------------------------------


class Endpoint:
    """Refuses what the real one refuses: a request without a model, or without the key's header."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[tuple[Mapping[str, str], Any]] = []

    async def answer(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        self.requests.append((request.headers, body))
        if request.headers.get("x-api-key") != "key-1":
            return web.json_response({"error": {"message": "no key"}}, status=401)
        if not body.get("model"):
            return web.json_response({"error": {"message": "model: required"}}, status=400)
        content = [{"type": "text", "text": "4"}]
        return web.json_response({"id": "m1", "model": body["model"], "content": content})


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    found = Endpoint()
    app = web.Application()
    app.router.add_post("/v1/messages", found.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", free_port()).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield found
    await runner.cleanup()


def configured(endpoint: Endpoint, **more: Any) -> ModelConfig:
    given = {"api_key": Secret("key-1"), "model": "small-1", "max_retries": 0, **more}
    return ModelConfig(backend=BACKEND, url=endpoint.url, **given)


@asynccontextmanager
async def serving(config: ModelConfig) -> AsyncIterator[ModelService]:
    service = ModelService(config, "policy", "policy-0")
    await service.open(PeerDirectory())
    try:
        yield service
    finally:
        await service.close()


async def ask(service: ModelService, **params: Any) -> Any:
    asked = model_pb2.CreateResponseRequest(params=params_from_json({"input": "2 + 2?", **params}))
    async with asyncio.timeout(BOUND_S):
        return await service.CreateResponse(asked, CallContext("CreateResponse"))


async def test_it_answers_with_the_configured_model_and_its_own_header(endpoint: Endpoint) -> None:
    async with serving(configured(endpoint)) as service:
        reply = await ask(service, model="policy")
        about = await service.GetModel(model_pb2.GetModelRequest(), CallContext("GetModel"))
    assert text_of(reply.response.output[0]) == "4"
    ((headers, body),) = endpoint.requests
    assert body["model"] == "small-1"
    assert headers["x-api-key"] == "key-1"
    assert headers["api-version"] == "2023-06-01"
    assert "Authorization" not in headers
    assert (about.backend, about.endpoint_model) == ("messages", "small-1")


async def test_what_it_cannot_express_names_it(endpoint: Endpoint) -> None:
    tool = {"type": "function", "name": "add", "parameters": {"type": "object"}}
    async with serving(configured(endpoint)) as service:
        with pytest.raises(MeshError, match="backend 'messages'") as caught:
            await ask(service, tools=[tool])
    assert caught.value.metadata == {"parameter": "tools", "backend": "messages"}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({}, "needs 'url'"),
        ({"urls": ["http://a"]}, "accepts only one 'url'"),
        (
            {"url": "http://a", "serve": {"model": "m"}},
            "'serve' is only for the backend 'vllm'",
        ),
        ({"backend": f"{__name__}:Nothing"}, "cannot be imported"),
        ({"backend": "tests.nowhere:Nothing"}, "cannot be imported"),
        ({"backend": f"{__name__}:Endpoint"}, "not a subclass of"),
    ],
)
def test_a_configuration_is_checked_by_its_facts(raw: dict[str, Any], words: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert({"backend": BACKEND, **raw}, ModelConfig)


async def test_a_check_tries_it(endpoint: Endpoint) -> None:
    (found,) = await model_checks.check({"policy": configured(endpoint)}, timeout=BOUND_S)
    assert found.ok, found
    assert found.endpoint_model == "small-1"
    (found,) = await model_checks.check(
        {"policy": configured(endpoint, api_key=None)}, timeout=BOUND_S
    )
    assert found.reason == "MODEL_CREDENTIAL_REFUSED"
