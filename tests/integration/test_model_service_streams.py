"""Streamed answers of the model service, against a real HTTP endpoint."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from gymmesh.model.v1 import model_pb2
from gymmesh_model import ModelService
from gymmesh_responses import response_to_dict, text_of
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from tests.integration.test_model_service import BOUND_S, ask, needs_its_package, request, serving
from tests.integration.test_model_service_faults import BACKENDS, configured
from tests.support import endpoint as fake
from tests.support.endpoint import FakeEndpoint
from tests.unit.runtime.probe import until

SAID: dict[str, Any] = {
    "content": "the answer is 4",
    "calls": [("c1", "add", '{"a": 1.0, "b": "ü😀"}'), ("c2", "add", "{}")],
    "reasoning": "let me see",
}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    needs_its_package(request.param)
    chosen: str = request.param
    return chosen


@pytest.fixture
async def server() -> AsyncIterator[FakeEndpoint]:
    async with FakeEndpoint() as running:
        yield running


def stream(service: ModelService, asked: Any | None = None, deadline: float | None = None) -> Any:
    call = model_pb2.StreamResponseRequest(call=asked or request())
    return aclosing(service.StreamResponse(call, CallContext("StreamResponse", deadline=deadline)))


async def read(service: ModelService, asked: Any | None = None) -> tuple[list[Any], Any]:
    """The deltas, and the answer."""
    async with asyncio.timeout(BOUND_S), stream(service, asked) as frames:
        got = [frame async for frame in frames]
    assert [frame.WhichOneof("frame") for frame in got[:-1]] == ["delta"] * (len(got) - 1)
    return [frame.delta for frame in got[:-1]], got[-1].completed


def without_ids(response: Any) -> dict[str, Any]:
    document: dict[str, Any] = response_to_dict(response)
    for one in (document, *document["output"]):
        one.pop("id")
    return document


async def test_deltas_and_then_the_whole_answer(backend: str, server: FakeEndpoint) -> None:
    server.default = fake.answer(**SAID)
    async with serving(configured(backend, server)) as service:
        deltas, completed = await read(service)
        whole = await ask(service)
        model = await service.GetModel(model_pb2.GetModelRequest(), CallContext("GetModel"))
    assert model.capabilities.streaming
    assert without_ids(completed.response) == without_ids(whole.response)
    said: dict[tuple[int, str | None], bytes] = {}
    for delta in deltas:
        key = (delta.output_index, delta.WhichOneof("delta"))
        said[key] = said.get(key, b"") + getattr(delta, key[1] or "")
    assert said == {
        (0, "reasoning"): b"let me see",
        (1, "text"): b"the answer is 4",
        (2, "arguments"): '{"a": 1.0, "b": "ü😀"}'.encode(),
        (3, "arguments"): b"{}",
    }
    assert completed.response.usage.output_tokens == 7
    if backend == "chat":
        assert server.requests[0].body["stream_options"] == {"include_usage": True}
    assert server.requests[0].body["stream"] is True
    assert "stream" not in server.requests[1].body


async def test_deltas_come_before_the_answer_is_whole(backend: str, server: FakeEndpoint) -> None:
    gate = asyncio.Event()

    server.default = fake.cut(None, "end", gate, content="four")
    async with (
        serving(configured(backend, server)) as service,
        asyncio.timeout(BOUND_S),
        stream(service) as frames,
    ):
        assert (await anext(frames)).delta.text
        assert not gate.is_set()
        gate.set()
        rest = [frame async for frame in frames]
    assert text_of(rest[-1].completed.response.output[0]) == "four"


async def test_a_reader_who_leaves_after_the_failure(
    backend: str, server: FakeEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is that of a call that nobody waits for: it is no news, and not logged."""
    server.default = fake.cut(4, "reset", content="hello, there")
    async with serving(configured(backend, server, max_retries=0)) as service:
        async with asyncio.timeout(BOUND_S), stream(service) as frames:
            await anext(frames)
            await until(lambda: not any(map(_generates, asyncio.all_tasks())))
        gc.collect()  # asyncio tells of a failed task that was not asked when that goes away
    assert [one.getMessage() for one in caplog.records if one.name == "asyncio"] == []


def _generates(task: asyncio.Task[Any]) -> bool:
    return any(name in repr(task.get_coro()) for name in ("_generate", "CallRegistry.ask"))


async def test_a_reader_who_leaves_stops_the_work(backend: str, server: FakeEndpoint) -> None:
    server.default = fake.cut(4, "hang", content="hello, there")
    async with serving(configured(backend, server, max_concurrency=1)) as service:
        async with asyncio.timeout(BOUND_S):
            async with stream(service) as frames:
                await anext(frames)
            await server.idle.wait()
        server.default = fake.text("4")
        assert text_of((await ask(service)).response.output[0]) == "4"


async def test_the_deadline_bounds_a_stream(backend: str, server: FakeEndpoint) -> None:
    server.default = fake.cut(4, "hang", content="hello, there")
    deadline = asyncio.get_running_loop().time() + 4.0  # the first delta comes in time
    async with (
        serving(configured(backend, server)) as service,
        asyncio.timeout(BOUND_S),
        stream(service, deadline=deadline) as frames,
    ):
        assert (await anext(frames)).delta.text
        with pytest.raises(MeshError) as caught:
            [frame async for frame in frames]
        assert caught.value.reason_name == "MODEL_TIMEOUT"
        await server.idle.wait()
    # Part of it was handed over: another try would contradict it.
    assert len(server.requests) == 1


async def test_a_stream_is_tried_again_before_its_first_delta(
    backend: str, server: FakeEndpoint
) -> None:
    server.script = [fake.status(500), fake.cut(1, "reset", content="no"), fake.text("yes")]
    async with serving(configured(backend, server, max_retries=2)) as service:
        deltas, completed = await read(service)
    assert b"".join(delta.text for delta in deltas) == b"yes"
    assert text_of(completed.response.output[0]) == "yes"
    assert len(server.requests) == 3


async def test_an_endpoint_that_does_not_stream(backend: str, server: FakeEndpoint) -> None:
    server.default = fake.unstreamed("4")
    async with serving(configured(backend, server)) as service:
        deltas, completed = await read(service)
    assert deltas == []
    assert text_of(completed.response.output[0]) == "4"


async def abort(service: ModelService) -> None:
    context = CallContext("AbortResponse")
    await service.AbortResponse(model_pb2.AbortResponseRequest(request_id="r1"), context)


async def test_an_aborted_stream_keeps_what_had_come(backend: str, server: FakeEndpoint) -> None:
    server.default = fake.cut(5, "hang", content="hello, there")
    got = []
    async with serving(configured(backend, server)) as service:
        async with (
            asyncio.timeout(BOUND_S),
            stream(service, request(request_id="r1", call_id="c-9")) as frames,
        ):
            got.append(await anext(frames))
            await abort(service)
            got += [frame async for frame in frames]
        completed = got[-1].completed
        assert completed.call_id == "c-9"
        response = completed.response
        assert (response.status, response.incomplete_details.reason) == ("incomplete", "aborted")
        said = b"".join(frame.delta.text for frame in got[:-1])
        assert text_of(response.output[0]).encode() == said
        assert said in (b"hel", b"hello,", b"hello, th")
        # A retry of the call learns the same.
        again = await ask(service, request(request_id="r1"))
        assert (again.response, again.from_cache) == (response, True)


@pytest.mark.parametrize("keep", [True, False])
async def test_an_aborted_call_keeps_what_had_come_when_asked_to(
    backend: str, server: FakeEndpoint, keep: bool
) -> None:
    hangs = asyncio.Event()
    server.default = fake.cut(4, "hang", hangs=hangs, content="hello, there")
    if not keep:
        server.default = fake.hang()
        hangs.set()
    config = configured(backend, server, options={"keep_aborted": keep})
    async with serving(config) as service, asyncio.timeout(BOUND_S):
        call = asyncio.ensure_future(ask(service, request(request_id="r1")))
        await server.arrived.wait()
        await hangs.wait()
        # Both ends share this event loop: a few turns of it and all that was sent is read.
        for _ in range(30):
            await asyncio.sleep(0.01)
        await abort(service)
        response = (await call).response
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "aborted")
    assert ("stream" in server.requests[0].body) is keep
    if keep:
        assert "hello, there".startswith(text_of(response.output[0]))
        assert text_of(response.output[0])
    else:
        assert not response.output


async def test_thinking_is_told_apart_in_streams_too(server: FakeEndpoint) -> None:
    server.default = fake.text("<think>hm\n</think>\n4")
    config = configured("chat", server, options={"think_tags": "both"})
    async with serving(config) as service:
        deltas, completed = await read(service)
        whole = await ask(service)
        output = response_to_dict(whole.response)["output"]
        await ask(service, request({"input": [{"role": "user", "content": "q"}, *output]}))
    assert b"".join(delta.reasoning for delta in deltas) == b"hm\n"
    assert b"".join(delta.text for delta in deltas) == b"\n4"
    assert [item["type"] for item in output] == ["reasoning", "message"]
    assert without_ids(completed.response) == without_ids(whole.response)
    sent = server.requests[-1].body["messages"][-1]
    assert sent == {"role": "assistant", "content": "<think>hm\n</think>\n4"}
