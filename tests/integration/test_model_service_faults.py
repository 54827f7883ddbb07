"""Every way an endpoint can fail, as a table: each row against each backend, whole and streamed."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pytest
from prometheus_client import generate_latest

from gymmesh.model.v1 import model_pb2
from gymmesh_model import ModelConfig, ModelService
from gymmesh_responses import text_of
from gymmesh_runtime import metrics
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError, to_status
from tests.integration.test_model_service import (
    BOUND_S,
    KEY,
    ask,
    needs_its_package,
    request,
    serving,
)
from tests.support import endpoint as fake
from tests.support.endpoint import FakeEndpoint

pytestmark = pytest.mark.long(seconds=85)

BACKENDS = ("chat", "responses", "openai", "azure")
# What a time limit is set to where the fault is that nothing comes.
SHORT_S = 2.0
NUMBERS = itertools.count()


@dataclass(frozen=True)
class Fault:
    """fault: what the endpoint does. reason: of the failure. tries: with one retry allowed."""

    name: str
    fault: Any
    reason: str
    tries: int = 1
    retry_after_s: float | None = None


def echoing(code: int, **more: Any) -> Any:
    """An error that quotes the key, as some endpoints do."""
    return fake.status(code, message=f"it went wrong for {KEY}", **more)


def ended(reason: str, **more: Any) -> Any:
    """An answer that the endpoint ends with this reason, in the words of either API, whole."""
    message = {"role": "assistant", "content": "The answ"}
    item = {"type": "message", "role": "assistant", "content": []}
    return lambda seen: fake.document(
        {
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "id": f"r-{next(NUMBERS)}",  # the same body twice is another fault
            "object": "response",
            "status": "incomplete",
            "incomplete_details": {"reason": reason},
            "output": [item],
            **more,
        }
    )


TABLE = [
    Fault("hang", fake.hang(), "MODEL_TIMEOUT"),
    Fault("slow drip", fake.drip(), "MODEL_TIMEOUT"),
    Fault("reset before the headers", fake.reset(), "MODEL_UNREACHABLE", 2),
    Fault("reset after the headers", fake.reset(after_headers=True), "MODEL_UNREACHABLE", 2),
    Fault("429, come back now", echoing(429, retry_after="0"), "MODEL_RATE_LIMITED", 2, 0),
    Fault("429, come back late", echoing(429, retry_after="90"), "MODEL_RATE_LIMITED", 1, 90),
    Fault("429 without Retry-After", echoing(429), "MODEL_RATE_LIMITED", 2),
    Fault("500", echoing(500), "MODEL_SERVER_ERROR", 2),
    Fault("502", fake.raw(b"<html>bad gateway", 502), "MODEL_SERVER_ERROR", 2),
    Fault("504", echoing(504), "MODEL_SERVER_ERROR", 2),
    Fault("invalid JSON", fake.broken_json(), "MODEL_ANSWER_INVALID"),
    Fault("empty body", fake.raw(b""), "MODEL_ANSWER_INVALID"),
    Fault("truncated body", fake.short(), "MODEL_UNREACHABLE", 2),
    Fault("a list", fake.document([1]), "MODEL_ANSWER_INVALID"),
    Fault("wrong schema", fake.document({"choices": [], "output": 3}), "MODEL_ANSWER_INVALID"),
    Fault(
        "wrong items",
        fake.document({"choices": [{"message": 1}], "output": [7]}),
        "MODEL_ANSWER_INVALID",
    ),
    Fault("finish_reason error", ended("error"), "MODEL_SERVER_ERROR", 2),
    Fault("finish_reason network_error", ended("network_error"), "MODEL_SERVER_ERROR", 2),
    Fault("an abort that nobody asked for", ended("abort"), "MODEL_SERVER_ERROR", 2),
    Fault(
        "an error beside the answer",
        ended("stop", error={"message": "the provider died", "code": 502}),
        "MODEL_SERVER_ERROR",
        2,
    ),
    Fault("redirect", fake.raw(b"", 302, {"Location": "/v1/else"}), "MODEL_ANSWER_INVALID"),
    Fault("context length exceeded", fake.context_exceeded(), "MODEL_CONTEXT_EXCEEDED"),
    Fault(
        "content filter of the prompt",
        echoing(400, error_code="content_filter"),
        "MODEL_REQUEST_REFUSED",
    ),
    Fault("quota spent", echoing(429, error_code="insufficient_quota"), "MODEL_QUOTA_SPENT"),
    Fault("bad request", echoing(400), "MODEL_REQUEST_REFUSED"),
    Fault("credential refused", echoing(401), "MODEL_CREDENTIAL_REFUSED"),
    Fault(
        "failure with status 200",
        # Not in the very same words: a copy of an earlier answer is asked for again.
        lambda seen: fake.document(
            {"error": {"message": f"x {KEY}"}, "status": "failed", "id": f"r{next(NUMBERS)}"}
        ),
        "MODEL_SERVER_ERROR",
        2,
    ),
]

# Of streams only; three events are there before it happens.
STREAMED = [
    Fault("stream hangs", fake.cut(3, "hang", content="hello, there"), "MODEL_TIMEOUT"),
    Fault("stream breaks", fake.cut(4, "reset", content="hello, there"), "MODEL_UNREACHABLE"),
    Fault("stream ends early", fake.cut(4, "end", content="hello, there"), "MODEL_ANSWER_INVALID"),
    Fault("event is no JSON", fake.chunks([b"data: {\n\n"]), "MODEL_ANSWER_INVALID"),
    Fault("event is a list", fake.chunks([b"data: []\n\n"]), "MODEL_ANSWER_INVALID"),
    Fault("comments for ever", fake.chunks([b": ping\n\n"] * 500, pause=0.02), "MODEL_TIMEOUT"),
    Fault(
        "failure in the stream",
        fake.chunks([fake.event({"type": "error", "error": {"message": f"x {KEY}"}})]),
        "MODEL_SERVER_ERROR",
        2,
    ),
]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    needs_its_package(request.param)
    chosen: str = request.param
    return chosen


@pytest.fixture
async def server() -> AsyncIterator[FakeEndpoint]:
    async with FakeEndpoint() as running:
        yield running


def configured(backend: Any, server: FakeEndpoint, **more: Any) -> ModelConfig:
    given = {"timeout_s": 60.0, "max_retries": 1, "api_key": KEY, "model": "m-1", **more}
    url = server.root if backend == "azure" else server.url
    return ModelConfig(backend=backend, url=url, **given)


async def streamed(service: ModelService, frames: list[Any], call: Any = None) -> None:
    """Reads a whole stream into `frames`, so that they are there when it fails."""
    asked = model_pb2.StreamResponseRequest(call=call or request())
    async with (
        asyncio.timeout(BOUND_S),
        aclosing(service.StreamResponse(asked, CallContext("StreamResponse"))) as stream,
    ):
        async for frame in stream:
            frames.append(frame)


async def answered(service: ModelService, server: FakeEndpoint) -> None:
    """The endpoint answers, which on a busy machine may take longer than the model's limit."""
    server.default = fake.text("4")
    async with asyncio.timeout(BOUND_S):
        while True:
            try:
                assert text_of((await ask(service)).response.output[0]) == "4"
                return
            except MeshError as error:
                if error.reason_name != "MODEL_TIMEOUT":
                    raise


async def check(row: Fault, backend: str, server: FakeEndpoint, *, stream: bool) -> None:
    late = row.reason == "MODEL_TIMEOUT"
    frames: list[Any] = []
    config = configured(backend, server, timeout_s=SHORT_S if late else 60.0)
    async with serving(config) as service:
        if late:  # the first call has a client to make, and may be out of time before it is sent
            await answered(service, server)
            server.requests.clear()
        server.default = row.fault
        with pytest.raises(MeshError) as caught:
            await (streamed(service, frames) if stream else ask(service))
        error = caught.value
        assert error.reason_name == row.reason
        assert error.metadata["model"] == "policy"
        assert error.retry_after_s == row.retry_after_s
        assert "no place was free" not in error.message
        assert KEY not in f"{error} {error.metadata} {to_status(error)}"
        assert all(frame.WhichOneof("frame") == "delta" for frame in frames)
        assert len(server.requests) == row.tries
        # Nothing is parked at the endpoint, and the next call gets its answer.
        async with asyncio.timeout(BOUND_S):
            await server.idle.wait()
        await answered(service, server)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
async def test_each_fault_is_typed(
    backend: str, server: FakeEndpoint, row: Fault, stream: bool
) -> None:
    await check(row, backend, server, stream=stream)


@pytest.mark.parametrize("row", STREAMED, ids=lambda row: row.name)
async def test_each_fault_of_a_stream_is_typed(
    backend: str, server: FakeEndpoint, row: Fault
) -> None:
    await check(row, backend, server, stream=True)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_an_endpoint_that_is_down_and_then_back(
    backend: str, server: FakeEndpoint, stream: bool
) -> None:
    config = configured(backend, server, max_retries=0)
    await server.stop()
    async with serving(config) as service:
        with pytest.raises(MeshError) as caught:
            await (streamed(service, []) if stream else ask(service))
        assert caught.value.reason_name == "MODEL_UNREACHABLE"
        assert caught.value.metadata["cause"] == "connection refused"
        await server.start(int(config.url.split(":")[2].split("/")[0]) if config.url else 0)
        assert text_of((await ask(service)).response.output[0]) == "ok"


async def test_a_filtered_answer_is_cut_short(backend: str, server: FakeEndpoint) -> None:
    server.default = fake.text("half", finish="content_filter")
    frames: list[Any] = []
    async with serving(configured(backend, server)) as service:
        whole = (await ask(service)).response
        await streamed(service, frames)
    for response in (whole, frames[-1].completed.response):
        assert response.status == "incomplete"
        assert response.incomplete_details.reason == "content_filter"
        assert text_of(response.output[0]) == "half"


async def test_keys_are_nowhere_to_be_seen(
    backend: str, server: FakeEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "header-secret-123"
    config = configured(backend, server, headers={"X-Team": secret})
    shown: list[str] = [repr(config)]
    faults = [row.fault for row in TABLE if row.reason != "MODEL_TIMEOUT"]
    async with serving(config) as service:
        frames: list[Any] = []
        for fault in faults:
            server.default = fault
            for asked in (ask(service), streamed(service, frames)):
                with pytest.raises(MeshError) as caught:
                    await asked
                error = caught.value
                shown += [repr(error), str(error), str(to_status(error)), str(error.metadata)]
        server.default = fake.text("4")
        shown.append(str(await ask(service)))
        await streamed(service, frames)
        model = await service.GetModel(model_pb2.GetModelRequest(), CallContext("GetModel"))
        shown += [str(frames), str(model)]
    sent = server.requests[-1].headers
    assert secret == sent["X-Team"]
    assert KEY in (sent.get("Authorization", "") + sent.get("api-key", ""))
    shown += [generate_latest(metrics.REGISTRY).decode(), caplog.text]
    shown += [str(record.__dict__) for record in caplog.records]
    for text in shown:
        assert KEY not in text
        assert secret not in text
