"""Weights change while a model service has calls in flight: adapters are named, parts joined."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh_model import ModelConfig, ModelService
from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_model.backends.tokens_in import TokenBackend
from gymmesh_responses import text_of
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from tests.support.dialogue import Dialogue, ids_of, user
from tests.support.token_servers import TokenServer, toy_tokenizer
from tests.support.vllm_server import FakeVllm, decode, encode, says

BOUND_S = 120.0
TOY = "tests.support.token_servers:toy_tokenizer"
Json = dict[str, Any]

# How the token engines are asked, and where a request names an adapter.
ENGINES: dict[str, tuple[Any, str, Json]] = {
    "completions": ("vllm", "vllm_tokens", {}),
    "generate": ("vllm", "vllm_tokens", {"api": "generate"}),
    "sglang": ("sglang", "sglang", {}),
}
engines = pytest.mark.parametrize("name", ENGINES)


@asynccontextmanager
async def opened(backend: str, url: str, **config: Any) -> AsyncIterator[ModelService]:
    given = {"timeout_s": 60.0, "max_retries": 0, "model": "toy", **config}
    service = ModelService(ModelConfig(backend=backend, url=url, **given), "policy", "p-0")
    async with asyncio.timeout(BOUND_S):
        await service.open(PeerDirectory())
        try:
            yield service
        finally:
            await service.close()


async def announce(service: ModelService, version: int, adapter: str = "", **more: Any) -> None:
    request = model_pb2.SetWeightsVersionRequest(version=version, adapter=adapter, **more)
    await service.SetWeightsVersion(request, CallContext("SetWeightsVersion"))


async def about(service: ModelService) -> model_pb2.GetModelResponse:
    return await service.GetModel(model_pb2.GetModelRequest(), CallContext("GetModel"))


def spans(capture: Any) -> list[tuple[int, int, str]]:
    return [(one.version, one.first_token, one.adapter) for one in capture.weights]


def named(body: Json) -> str:
    return str(body.get("lora_path") or body.get("model") or "")


def cut(answer: Json, tokens: int) -> Json:
    """The answer as a server gives it whose weights change after so many tokens."""
    if "meta_info" in answer:
        meta = answer["meta_info"]
        meta["finish_reason"] = {"type": "abort", "message": "Abort in pause"}
        answer["output_ids"] = answer["output_ids"][:tokens]
        meta["output_token_logprobs"] = meta["output_token_logprobs"][:tokens]
        return answer
    [choice] = answer["choices"]
    choice["finish_reason"] = "abort"
    if "token_ids" in choice:
        choice["token_ids"] = choice["token_ids"][:tokens]
    given = choice.get("logprobs") or {}
    for key in ("tokens", "token_logprobs", "content"):
        if given.get(key):
            given[key] = given[key][:tokens]
    return answer


class Interrupts:
    """Cuts the first answers short, as many as there are actions, and does one each time."""

    def __init__(self, *actions: Callable[[], object], tokens: int = 2) -> None:
        self.actions = list(actions)
        self.tokens = tokens

    def __call__(self, answer: Json) -> Json:
        if not self.actions:
            return answer
        self.actions.pop(0)()
        return cut(answer, self.tokens)


@asynccontextmanager
async def engine(name: str, **server: Any) -> AsyncIterator[tuple[TokenServer, ModelService]]:
    kind, backend, options = ENGINES[name]
    async with (
        TokenServer(kind, **server) as one,
        opened(backend, one.url, options={"tokenizer": TOY, **options}) as service,
    ):
        yield one, service


@engines
async def test_calls_name_the_adapter_in_force(name: str) -> None:
    async with engine(name) as (server, service):
        talk = Dialogue(service)
        await talk.ask(user("a"))
        await announce(service, 4, "policy@4")
        await talk.ask(user("b"))
        await announce(service, 5)
        await talk.ask(user("c"))
        model = await about(service)
    own = "" if name == "sglang" else "toy"
    assert [named(body) for body in server.bodies] == [own, "policy@4", own]
    assert [spans(one) for one in talk.captures] == [[], [(4, 0, "policy@4")], [(5, 0, "")]]
    assert model.capabilities.adapters
    assert model.capabilities.weights_loading
    assert (model.weights_version, model.adapter, list(model.adapters_in_use)) == (5, "", [])


@engines
async def test_an_interrupted_answer_goes_on_from_its_tokens(name: str) -> None:
    script = [says("one two"), says("and three", cut=True), says("four")]
    async with engine(name, script=script, splits=True) as (server, service):
        clock = service._weights
        server.alter = Interrupts(
            lambda: clock.set(2, "policy@2"), lambda: clock.set(3, "policy@3")
        )
        await announce(service, 1, "policy@1")
        talk = Dialogue(service, max_output_tokens=50)
        reply = await talk.ask(user("a"))
        await talk.ask(user("b"))
    assert text_of(reply.response.output[0]) == "onanfour"
    assert [named(body) for body in server.bodies[:3]] == ["policy@1", "policy@2", "policy@3"]
    assert spans(reply.tokens) == [(1, 0, "policy@1"), (2, 2, "policy@2"), (3, 4, "policy@3")]
    first, second, third, later = server.prompts
    output = ids_of(reply.tokens.output_token_ids)
    assert second == first + output[:2]
    assert third == first + output[:4]
    assert later[: len(first) + len(output)] == first + output
    assert len(reply.tokens.logprobs) == 4 * len(output)
    assert decode(output).startswith("onanfour")
    limits = [
        (body.get("sampling_params") or body).get("max_tokens")
        or body["sampling_params"]["max_new_tokens"]
        for body in server.bodies[:3]
    ]
    assert limits == [50, 48, 46]


@engines
async def test_an_answer_that_is_aborted_waits_for_the_weights(name: str) -> None:
    """As a push does it: hold, pause, load, announce."""
    async with engine(name, script=[says("one two"), says("three")]) as (server, service):
        clock = service._weights
        held = asyncio.Event()

        def hold() -> None:
            clock.wait_for(60.0)
            held.set()

        server.alter = Interrupts(hold)
        await announce(service, 1)
        asking = asyncio.create_task(Dialogue(service).ask(user("a")))
        await held.wait()
        waiting = asyncio.create_task(Dialogue(service).ask(user("b")))
        await asyncio.sleep(0)
        assert len(server.bodies) == 1
        await announce(service, 2)
        reply, other = await asyncio.gather(asking, waiting)
    assert spans(reply.tokens) == [(1, 0, ""), (2, 2, "")]
    assert spans(other.tokens) == [(2, 0, "")]


async def test_what_generate_reports_is_exact_over_a_change() -> None:
    told = [{"version": "1", "start": 0, "end": 1}, {"version": "2", "start": 1, "end": 9}]
    async with engine("generate", spans=told) as (server, service):
        await announce(service, 1)
        reply = await Dialogue(service).ask(user("a"))
        assert spans(reply.tokens) == [(1, 0, ""), (2, 1, "")]
        # Of a call that names an adapter it is the weights below.
        await announce(service, 3, "policy@3")
        reply = await Dialogue(service).ask(user("a"))
        assert spans(reply.tokens) == [(3, 0, "policy@3")]
    assert server.bodies[0]["sampling_params"]["logprobs"] == 0


async def test_a_version_that_sglang_reports_at_the_end_is_not_that_of_the_beginning() -> None:
    async with engine("sglang", version="2") as (server, service):
        clock = service._weights
        await announce(service, 1)

        def swapped(answer: Json) -> Json:
            clock.set(2)
            return answer

        server.alter = swapped
        reply = await Dialogue(service).ask(user("a"))
        size = len(ids_of(reply.tokens.output_token_ids))
        assert spans(reply.tokens) == [(1, 0, ""), (2, size, "")]


# -- the chat API -----------------------------------------------------------------------------


async def test_an_interrupted_chat_begins_again() -> None:
    server = FakeVllm(script=[says("one two"), says("three"), says("four")], splits=True)
    async with server, opened("vllm", server.url) as service:
        clock = service._weights
        server.alter = Interrupts(lambda: clock.set(2, "policy@2"))
        await announce(service, 1, "policy@1")
        talk = Dialogue(service)
        reply = await talk.ask(user("a"))
        await talk.ask(user("b"))
    chats = [body for path, body in server.requests if path == "chat"]
    assert [body["model"] for body in chats] == ["policy@1", "policy@2", "policy@2"]
    assert text_of(reply.response.output[0]) == "three"
    assert spans(reply.tokens) == [(2, 0, "policy@2")]
    assert reply.retries == []
    assert not talk.captures[1].HasField("fork")


async def test_without_tokens_too_the_adapter_is_told() -> None:
    server = FakeVllm()
    async with server, opened("chat", server.url) as service:
        clock = service._weights
        server.alter = Interrupts(lambda: clock.set(2, "policy@2"))
        await announce(service, 1, "policy@1")
        request = Dialogue(service).request(user("a"))
        request.ClearField("capture")
        reply = await service.CreateResponse(request, CallContext("CreateResponse"))
        assert spans(reply.tokens) == [(2, 0, "policy@2")]


async def test_an_abort_without_new_weights_is_a_failure() -> None:
    server = FakeVllm(alter=lambda answer: cut(answer, 1))
    async with server, opened("vllm", server.url) as service:
        await announce(service, 1, "policy@1")
        with pytest.raises(MeshError) as caught:
            await Dialogue(service).ask(user("a"))
    assert caught.value.reason == errors_pb2.ERROR_REASON_MODEL_SERVER_ERROR


async def test_what_one_answer_reports_is_not_said_of_other_calls() -> None:
    """Another server of the engine may still have the version before."""
    reports: list[tuple[int, int]] = []

    async def generate(prompt: list[int], params: SamplingParams) -> Generation:
        told, reports[:] = list(reports), []
        return Generation([*encode("ok"), 2], weights=told)

    backend = TokenBackend(toy_tokenizer(), generate)
    service = ModelService(ModelConfig(), "policy", "p-0", backend=backend)
    await service.open(PeerDirectory())
    await announce(service, 5)
    reports[:] = [(5, 0), (6, 1)]
    talk, other = Dialogue(service), Dialogue(service)
    await talk.ask(user("a"))
    await other.ask(user("b"))
    assert spans(talk.captures[0]) == [(5, 0, ""), (6, 1, "")]
    assert spans(other.captures[0]) == [(5, 0, "")]
    assert (await about(service)).weights_version == 6  # the newest that is known
    await announce(service, 6)
    await other.ask(user("c"))
    assert spans(other.captures[1]) == [(6, 0, "")]
    await service.close()


async def test_versions_of_a_server_that_names_the_last_one_go_on() -> None:
    """Nothing is announced: an answer may have begun with the version that was reported before."""
    async with engine("sglang") as (server, service):
        talk = Dialogue(service)
        for version in ("6", "7", "7"):
            server.version = version
            await talk.ask(user(version))
    assert [spans(one) for one in talk.captures] == [[(6, 0, "")], [(6, 0, "")], [(7, 0, "")]]


# -- the RPC ----------------------------------------------------------------------------------


async def test_calls_wait_no_longer_than_they_may() -> None:
    server = FakeVllm()
    async with server, opened("vllm", server.url, timeout_s=0.2) as service:
        await announce(service, 1, loading_s=3600)
        with pytest.raises(MeshError) as caught:
            await Dialogue(service).ask(user("a"))
        assert caught.value.reason == errors_pb2.ERROR_REASON_MODEL_TIMEOUT
        assert "the new weights were not loaded" in caught.value.message
        await announce(service, 1, loading_s=0)
        assert not (await about(service)).HasField("weights_version")
        await Dialogue(service).ask(user("a"))
    assert [path for path, _ in server.requests].count("chat") == 1


async def test_what_is_refused() -> None:
    server = FakeVllm()
    async with server, opened("responses", server.url) as service:
        with pytest.raises(MeshError) as caught:
            await announce(service, 1, "policy@1")
        assert caught.value.reason == errors_pb2.ERROR_REASON_NOT_OFFERED
        with pytest.raises(MeshError) as caught:
            await announce(service, 1, loading_s=3601)
        assert caught.value.metadata["field"] == "loading_s"
        await announce(service, 2)
        with pytest.raises(MeshError) as caught:
            await announce(service, 1, loading_s=5)
        assert caught.value.metadata["field"] == "version"
        assert not (await about(service)).capabilities.adapters
