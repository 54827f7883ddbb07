"""The model service against a real HTTP endpoint that answers, and fails, as told."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from gymmesh.model.v1 import model_pb2
from gymmesh_model import ModelConfig, ModelService
from gymmesh_model.config import CacheConfig
from gymmesh_model.serving import runner
from gymmesh_responses import params_from_json, response_to_dict, text_of
from gymmesh_runtime import metrics
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.config import ConfigError, Secret
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from tests.support import endpoint as fake
from tests.support.endpoint import FakeEndpoint
from tests.support.optional import require

Api = Literal["responses", "chat", "openai"]
KEY = Secret("sk-test-0123456789")
BOUND_S = 120.0
TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": None}


def needs_its_package(api: str) -> None:
    if api in ("openai", "azure"):
        found = importlib.util.find_spec("openai") is not None
        require(found, "the openai package", "install gymmesh[openai]")


@pytest.fixture(params=["responses", "chat", "openai"])
def api(request: pytest.FixtureRequest) -> Api:
    chosen: Api = request.param
    needs_its_package(chosen)
    return chosen


@pytest.fixture
async def server() -> AsyncIterator[FakeEndpoint]:
    async with FakeEndpoint() as running:
        yield running


@asynccontextmanager
async def serving(config: ModelConfig) -> AsyncIterator[ModelService]:
    service = ModelService(config, "policy", "policy-0")
    await service.open(PeerDirectory())
    try:
        yield service
    finally:
        await service.close()


def configured(api: Api, server: FakeEndpoint, **more: Any) -> ModelConfig:
    given = {"timeout_s": 60.0, "max_retries": 0, "api_key": KEY, "model": "m-1", **more}
    return ModelConfig(backend=api, url=server.url, **given)


def request(params: dict[str, Any] | None = None, **more: Any) -> Any:
    body = {"input": "2 + 2?", **(params or {})}
    return model_pb2.CreateResponseRequest(params=params_from_json(body), **more)


async def ask(service: ModelService, asked: Any | None = None) -> Any:
    context = CallContext("CreateResponse")
    async with asyncio.timeout(BOUND_S):
        return await service.CreateResponse(asked or request(), context)


async def failing(service: ModelService, asked: Any | None = None) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await ask(service, asked)
    error = caught.value
    assert KEY not in f"{error} {error.metadata}"
    return error


async def test_an_answer_with_everything(api: Api, server: FakeEndpoint) -> None:
    server.default = fake.answer(
        "let me see", [("c1", "add", '{"a": 1.0'), ("c2", "add", "{}")], reasoning="hm"
    )
    config = configured(api, server, params={"temperature": 0.25, "top_p": 0.5})
    asked = request(
        {
            "tools": [TOOL],
            "temperature": None,
            "top_p": 0.75,
            "max_output_tokens": 30,
            "store": None,
            "metadata": None,
        },
        call_id="call-7",
    )
    before = asked.SerializeToString(deterministic=True)
    async with serving(config) as service:
        reply = await ask(service, asked)
    assert asked.SerializeToString(deterministic=True) == before
    assert reply.call_id == "call-7"
    assert [item.WhichOneof("kind") for item in reply.response.output] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    call = reply.response.output[2].function_call
    assert (call.call_id, call.name, call.arguments) == ("c1", "add", b'{"a": 1.0')
    assert reply.response.usage.output_tokens == 7
    seen = server.requests[0]
    assert seen.headers["Authorization"] == f"Bearer {KEY}"
    spoken = "responses" if api == "openai" else api
    assert (seen.api, seen.body["model"]) == (spoken, "m-1")
    assert (seen.body["temperature"], seen.body["top_p"]) == (0.25, 0.75)
    assert None not in seen.body.values()
    assert seen.body["max_tokens" if api == "chat" else "max_output_tokens"] == 30


@pytest.mark.parametrize("api", ["responses", "chat"])
async def test_unpaired_surrogates_are_kept_and_not_sent(api: Api, server: FakeEndpoint) -> None:
    server.default = fake.answer(None, [("c1", "add", '{"a": "\ud800"}')])
    async with serving(configured(api, server)) as service:
        reply = await ask(service, request({"input": "\udc00 \ud83d\ude00"}))
    call = reply.response.output[0].function_call
    assert call.arguments == '{"a": "\ud800"}'.encode("utf-8", "surrogatepass")
    sent = json.dumps(server.requests[0].body, ensure_ascii=False)
    assert "\ufffd 😀" in sent  # the other has no UTF-8 form, and endpoints refuse it


async def test_a_truncated_answer_is_a_success(api: Api, server: FakeEndpoint) -> None:
    server.default = fake.text("half of", finish="length")
    async with serving(configured(api, server)) as service:
        response = (await ask(service)).response
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert text_of(response.output[0]) == "half of"


async def test_retry_after_reaches_the_caller(api: Api, server: FakeEndpoint) -> None:
    server.default = fake.status(429, retry_after="30")
    config = configured(api, server, max_retries=5, timeout_s=5.0)
    async with serving(config) as service:
        error = await failing(service)
    # Waiting half a minute does not fit into the time there is: the caller learns it at once.
    assert (error.reason_name, error.retry_after_s) == ("MODEL_RATE_LIMITED", 30)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "fault", [fake.status(500), fake.status(429, retry_after="0"), fake.reset()]
)
async def test_a_passing_fault_is_ridden_out(api: Api, server: FakeEndpoint, fault: Any) -> None:
    server.script = [fault, fault]
    async with serving(configured(api, server, max_retries=2)) as service:
        assert text_of((await ask(service)).response.output[0]) == "ok"
    assert len(server.requests) == 3


async def test_retries_are_capped(api: Api, server: FakeEndpoint) -> None:
    server.default = fake.status(503)
    async with serving(configured(api, server, max_retries=2)) as service:
        error = await failing(service)
    assert (error.reason_name, error.metadata["attempts"]) == ("MODEL_SERVER_ERROR", "3")
    assert len(server.requests) == 3


async def test_an_endpoint_that_is_down(api: Api, server: FakeEndpoint) -> None:
    await server.stop()
    async with serving(configured(api, server)) as service:
        error = await failing(service)
    assert error.reason_name == "MODEL_UNREACHABLE"
    assert error.metadata["cause"] == "connection refused"


async def test_the_callers_deadline_stops_the_work_at_the_endpoint(
    api: Api, server: FakeEndpoint
) -> None:
    server.default = fake.hang()
    async with serving(configured(api, server)) as service:
        loop = asyncio.get_running_loop()
        context = CallContext("CreateResponse", deadline=loop.time() + 3.0)
        with pytest.raises(MeshError) as caught:
            await service.CreateResponse(request(), context)
        assert caught.value.reason_name == "MODEL_TIMEOUT"
        async with asyncio.timeout(BOUND_S):
            await server.idle.wait()


@pytest.mark.parametrize("cached", [False, True])
async def test_a_bound_call_ends_by_its_deadline(
    api: Api, server: FakeEndpoint, cached: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.default = fake.hang()
    # Of the minute that a call has, its failure has nearly all to come back.
    monkeypatch.setattr(runner, "_seconds_for", lambda context, most: 1.0)
    cache = {"cache": CacheConfig(path=str(tmp_path), any_temperature=True)} if cached else {}
    async with serving(configured(api, server, **cache)) as service:
        method = Binding(service.kind, service).methods["CreateResponse"]
        ways = [request(request_id="r") for _ in range(2)] + [request()]
        asked = [asyncio.ensure_future(method.call(one, timeout=60.0)) for one in ways]
        async with asyncio.timeout(BOUND_S):
            ends = await asyncio.gather(*asked, return_exceptions=True)
        # The second waits for the first, and gets what that one got.
        reasons = [end.reason_name for end in ends if isinstance(end, MeshError)]
        assert reasons == ["MODEL_TIMEOUT"] * 3


async def test_unsupported_parameters_are_named(server: FakeEndpoint) -> None:
    cases: list[tuple[Api, str]] = [("chat", "previous_response_id"), ("responses", "background")]
    for api, parameter in cases:
        async with serving(configured(api, server)) as service:
            error = await failing(service, request({parameter: "x"}))
        assert error.reason_name == "PARAMETER_UNSUPPORTED"
        assert error.metadata == {"parameter": parameter, "backend": api}
    assert server.requests == []


async def test_no_more_calls_at_a_time_than_allowed(api: Api, server: FakeEndpoint) -> None:
    event = asyncio.Event()
    server.default = fake.gate(event, fake.text("ok"))
    async with serving(configured(api, server, max_concurrency=3)) as service:
        calls = [asyncio.ensure_future(ask(service)) for _ in range(12)]
        async with asyncio.timeout(BOUND_S):
            while server.running < 3:
                await server.arrived.wait()
                server.arrived.clear()
        event.set()
        replies = await asyncio.gather(*calls)
    assert server.peak == 3
    assert max(reply.queue_us for reply in replies) > 0


async def test_a_full_queue_refuses(server: FakeEndpoint) -> None:
    event = asyncio.Event()
    server.default = fake.gate(event, fake.text("ok"))
    config = configured("chat", server, max_concurrency=1, max_queue=1)
    async with serving(config) as service:
        calls = [asyncio.ensure_future(ask(service)) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (await failing(service)).reason_name == "QUEUE_FULL"
        event.set()
        await asyncio.gather(*calls)


async def test_waiting_for_a_place_is_bounded(server: FakeEndpoint) -> None:
    server.default = fake.hang()
    config = configured("chat", server, max_concurrency=1)
    async with serving(config) as service:
        first = asyncio.ensure_future(ask(service))
        await asyncio.wait_for(server.arrived.wait(), BOUND_S)
        context = CallContext("CreateResponse", deadline=time.monotonic() + 0.1)
        with pytest.raises(MeshError) as caught:
            await service.CreateResponse(request(), context)
        assert caught.value.reason_name == "MODEL_TIMEOUT"
        assert "no place was free" in caught.value.message
        first.cancel()
        await asyncio.wait([first])
        server.default = fake.text("ok")
        await ask(service)


async def test_a_retry_with_the_same_request_id_gets_the_same_answer(
    api: Api, server: FakeEndpoint
) -> None:
    server.script = [fake.text("first"), fake.text("second")]
    async with serving(configured(api, server)) as service:
        first = await ask(service, request(request_id="r1"))
        again = await ask(service, request(request_id="r1"))
        other = await ask(service, request(request_id="r2"))
        reused = await failing(service, request({"input": "else"}, request_id="r1"))
    assert again.response == first.response
    assert (first.from_cache, again.from_cache) == (False, True)
    assert text_of(other.response.output[0]) == "second"
    assert reused.reason_name == "REQUEST_ID_REUSED"


async def test_abort_stops_the_generation(api: Api, server: FakeEndpoint) -> None:
    server.default = fake.hang()
    context = CallContext("AbortResponse")
    async with serving(configured(api, server)) as service:
        call = asyncio.ensure_future(ask(service, request(request_id="r1")))
        async with asyncio.timeout(BOUND_S):
            await server.arrived.wait()
        await service.AbortResponse(model_pb2.AbortResponseRequest(request_id="r1"), context)
        response = (await call).response
        assert (response.status, response.incomplete_details.reason) == ("incomplete", "aborted")
        with pytest.raises(MeshError) as caught:
            await service.AbortResponse(model_pb2.AbortResponseRequest(request_id="r1"), context)
    assert caught.value.reason_name == "RESPONSE_NOT_FOUND"


async def test_what_the_model_is_and_its_weights(server: FakeEndpoint) -> None:
    context = CallContext("GetModel")
    async with serving(configured("chat", server)) as service:
        model = await service.GetModel(model_pb2.GetModelRequest(), context)
        assert (model.name, model.backend, model.endpoint_model) == ("policy", "chat", "m-1")
        assert model.capabilities.tools
        assert not model.HasField("weights_version")
        assert not (await ask(service)).HasField("tokens")
        swap = model_pb2.SetWeightsVersionRequest(version=4)
        assert not (await service.SetWeightsVersion(swap, context)).HasField("previous")
        assert [span.version for span in (await ask(service)).tokens.weights] == [4]
    assert len(server.requests) == 2


async def test_continuing_a_conversation_needs_it_whole(server: FakeEndpoint) -> None:
    reference = model_pb2.ConversationRef(id="r-1/1", parent_call_id="c0")
    async with serving(configured("chat", server)) as service:
        error = await failing(service, request(conversation=reference))
        assert error.reason_name == "CONVERSATION_UNKNOWN"
        assert error.metadata == {"conversation_id": "r-1/1"}
        whole = model_pb2.ConversationRef(id="r-1/1")
        await ask(service, request(conversation=whole))


async def test_a_stream_is_the_whole_answer(server: FakeEndpoint) -> None:
    asked = model_pb2.StreamResponseRequest(call=request())
    async with (
        serving(configured("chat", server)) as service,
        aclosing(service.StreamResponse(asked, CallContext("s"))) as frames,
    ):
        got = [frame async for frame in frames]
    assert [frame.WhichOneof("frame") for frame in got] == ["delta", "completed"]
    assert got[0].delta.text == b"ok"
    assert text_of(got[-1].completed.response.output[0]) == "ok"


async def test_a_closed_service_refuses(server: FakeEndpoint) -> None:
    async with serving(configured("chat", server)) as service:
        pass
    assert (await failing(service)).reason_name == "DRAINING"
    await service.close()


def recorded(tmp_path: Path, *rows: dict[str, Any]) -> ModelConfig:
    path = tmp_path / "recorded.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ModelConfig(backend="replay", path=str(path), timeout_s=5.0)


async def test_replay(tmp_path: Path) -> None:
    config = recorded(
        tmp_path,
        {
            "match": "2 + 2?",
            "answers": [
                {
                    "error": {"reason": "MODEL_RATE_LIMITED", "times": 1},
                    "text": "4",
                    "delay_s": 0.01,
                }
            ],
        },
        {
            "match": "long",
            "answers": [{"text": "ha", "incomplete_details": {"reason": "max_output_tokens"}}],
        },
        {"match": "bad", "answers": [{"error": {"reason": "MODEL_SERVER_ERROR"}}]},
        {"match": "slow", "answers": [{"text": "x", "delay_s": 60}]},
    )
    async with serving(config) as service:
        for rollout in ("r/0", "r/1"):
            limited = await failing(service, request(rollout_id=rollout))
            assert limited.reason_name == "MODEL_RATE_LIMITED"
            answer = await ask(service, request(rollout_id=rollout))
            assert text_of(answer.response.output[0]) == "4"
        cut = (await ask(service, request({"input": "long"}))).response
        assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        for _ in range(2):
            bad = await failing(service, request({"input": "bad"}))
            assert bad.reason_name == "MODEL_SERVER_ERROR"
        unknown = await failing(service, request({"input": "never heard"}))
        assert unknown.reason_name == "MODEL_REQUEST_REFUSED"
        context = CallContext("c", deadline=asyncio.get_running_loop().time() + 0.2)
        with pytest.raises(MeshError) as caught:
            await service.CreateResponse(request({"input": "slow"}), context)
        assert caught.value.reason_name == "MODEL_TIMEOUT"


async def test_a_bad_recording_is_one_sentence(tmp_path: Path) -> None:
    config = recorded(tmp_path, {"match": "q", "answers": [{"error": {"reason": "NOPE"}}]})
    service = ModelService(config, "policy", "policy-0")
    with pytest.raises(ConfigError, match="NOPE"):
        await service.open(PeerDirectory())
    missing = ModelConfig(backend="replay", path=str(tmp_path / "none.jsonl"))
    with pytest.raises(ConfigError, match=r"none\.jsonl"):
        await ModelService(missing, "policy", "p").open(PeerDirectory())


async def test_recorded_rollouts_replay_through_the_service(golden_dir: Path) -> None:
    path = golden_dir / "example_single_tool_call.example_rollouts.jsonl"
    row = json.loads(path.read_bytes().splitlines()[0])
    items = row["responses_create_params"]["input"]
    async with serving(ModelConfig(backend="replay", path=str(path))) as service:
        first = await ask(service, request({"input": items}, rollout_id="x/0"))
        output = response_to_dict(first.response)["output"]
        assert output == row["response"]["output"][: len(output)]
        again = await ask(service, request({"input": items}, rollout_id="x/0"))
    assert again.response == first.response


async def test_calls_and_tokens_are_counted(server: FakeEndpoint) -> None:
    def read(name: str, **labels: str) -> float:
        found = metrics.REGISTRY.get_sample_value(name, {"model": "counted", **labels})
        return found or 0.0

    server.script = [fake.text("x"), fake.text("x", finish="length"), fake.status(400)]
    service = ModelService(configured("chat", server), "counted", "counted-0")
    await service.open(PeerDirectory())
    try:
        await ask(service)
        await ask(service)
        await failing(service)
    finally:
        await service.close()
    for outcome in ("completed", "incomplete", "MODEL_REQUEST_REFUSED"):
        assert read("gymmesh_model_calls_total", outcome=outcome) == 1
    assert read("gymmesh_model_tokens_total", direction="input") == 22
    assert read("gymmesh_model_tokens_total", direction="output") == 14


async def test_parameters_that_cannot_be_sent_are_refused_at_the_start() -> None:
    config = ModelConfig(
        backend="chat", url="http://127.0.0.1:1/v1", params={"temperature": float("nan")}
    )
    with pytest.raises(ConfigError, match="temperature"):
        await ModelService(config, "policy", "p").open(PeerDirectory())
