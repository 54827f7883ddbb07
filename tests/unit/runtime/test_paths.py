"""One suite over every path: a call looks the same, whichever way it travels."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import grpc
import pytest

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh_runtime import metrics
from gymmesh_runtime.errors import MeshError, reason_name
from tests.unit.runtime.probe import (
    DISCOVERY,
    MODEL,
    PATHS,
    SECRET_WORDS,
    Probe,
    stream,
    unary,
)


class Bench:
    """The probe behind one path."""

    def __init__(self, path: str, probe: Probe, peer: Any, other: Any) -> None:
        self.path = path
        self.probe = probe
        self.peer = peer
        self.other = other  # a service whose servicer offers nothing at all


@pytest.fixture(params=sorted(PATHS))
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    probe = Probe()
    async with PATHS[request.param]({MODEL: probe, DISCOVERY: object()}) as directory:
        instance = await directory.pick(MODEL, "policy")
        peer, other = directory.peer(instance), directory.peer(instance, DISCOVERY)
        yield Bench(request.param, probe, peer, other)


async def failure(awaitable: Any) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await asyncio.wait_for(awaitable, 60)
    return caught.value


async def read(frames: Any, seen: list[int]) -> None:
    async with aclosing(frames):
        async for frame in frames:
            seen.append(frame.delta.output_index)


async def collect(frames: Any) -> list[int]:
    seen: list[int] = []
    await read(frames, seen)
    return seen


async def test_a_unary_call_answers(bench: Bench) -> None:
    request = unary("ok", request_id="r-1", call_id="c-1")
    reply = await bench.peer.CreateResponse(request, timeout=60.0)
    assert (reply.call_id, reply.response.id) == ("r-1", "c-1")
    assert request == unary("ok", request_id="r-1", call_id="c-1")


async def test_the_servicer_is_told_of_method_deadline_and_metadata(bench: Bench) -> None:
    await bench.peer.CreateResponse(unary("ok"), timeout=600.0, metadata={"trace": "t-1"})
    (context,) = bench.probe.contexts
    assert context.method == f"{MODEL}/CreateResponse"
    # gRPC writes few digits of a timeout and rounds it up.
    assert 0 < context.time_remaining() <= 610.0
    assert context.timeout(2.0) == 2.0
    assert context.timeout(1000.0) <= 610.0
    assert context.metadata["trace"] == "t-1"


async def test_a_stream_arrives_whole_and_in_order(bench: Bench) -> None:
    assert await collect(bench.peer.StreamResponse(stream("ok"), timeout=60.0)) == [0, 1, 2]
    assert bench.probe.closed.is_set()


async def test_a_typed_error_keeps_everything(bench: Bench) -> None:
    error = await failure(bench.peer.CreateResponse(unary("typed"), timeout=60.0))
    assert error.reason == errors_pb2.ERROR_REASON_QUEUE_FULL
    assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.message == "the queue is full — try later"
    assert error.metadata == {"queue": "model", "limit": "4096"}
    assert error.retry_after_s == 1.5


async def test_a_typed_error_in_mid_stream(bench: Bench) -> None:
    seen: list[int] = []
    error = await failure(read(bench.peer.StreamResponse(stream("typed"), timeout=60.0), seen))
    assert seen == [0, 1]
    assert error.reason == errors_pb2.ERROR_REASON_QUEUE_FULL
    assert error.metadata == {"queue": "model", "limit": "4096"}
    assert error.retry_after_s == 1.5


@pytest.mark.parametrize("behaviour", ["unforeseen", "timeout"])
async def test_an_unforeseen_error_does_not_leak_its_words(
    bench: Bench, behaviour: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "gymmesh.errors"):
        error = await failure(bench.peer.CreateResponse(unary(behaviour), timeout=60.0))
        streamed = await failure(
            collect(bench.peer.StreamResponse(stream(behaviour), timeout=60.0))
        )
    for one in (error, streamed):
        assert one.reason == errors_pb2.ERROR_REASON_INTERNAL_FAULT
        assert one.code is grpc.StatusCode.INTERNAL
        assert SECRET_WORDS not in one.message + repr(one.metadata)
        assert one.metadata["error_id"] in one.message
        logged = [entry for entry in caplog.records if one.metadata["error_id"] in entry.message]
        assert len(logged) == 1
        assert logged[0].exc_info


async def test_words_that_utf8_cannot_say_do_not_hide_the_error(bench: Bench) -> None:
    error = await failure(bench.peer.CreateResponse(unary("surrogate"), timeout=60.0))
    assert error.reason == errors_pb2.ERROR_REASON_TOOL_NOT_FOUND
    assert error.message.startswith("no tool named 'x")


async def test_a_very_long_error_arrives_typed(bench: Bench) -> None:
    for _ in range(40):  # trailers over the soft limit are refused at random
        error = await failure(bench.peer.CreateResponse(unary("long"), timeout=60.0))
        assert error.reason == errors_pb2.ERROR_REASON_FIELD_INVALID
        assert error.message.startswith("€€€")


async def test_a_missing_field_is_named_and_nothing_is_served(bench: Bench) -> None:
    request = model_pb2.CreateResponseRequest(rollout_id="ok")
    error = await failure(bench.peer.CreateResponse(request, timeout=60.0))
    assert error.reason == errors_pb2.ERROR_REASON_REQUIRED_FIELD_MISSING
    assert error.metadata == {"field": "params", "method": f"{MODEL}/CreateResponse"}
    nested = model_pb2.StreamResponseRequest(call=request)
    error = await failure(collect(bench.peer.StreamResponse(nested, timeout=60.0)))
    assert error.metadata == {"field": "call.params", "method": f"{MODEL}/StreamResponse"}
    assert bench.probe.contexts == []


async def test_what_is_not_offered_says_so(bench: Bench) -> None:
    error = await failure(bench.peer.GetModel(model_pb2.GetModelRequest(), timeout=60.0))
    assert error.reason == errors_pb2.ERROR_REASON_NOT_OFFERED
    assert error.code is grpc.StatusCode.UNIMPLEMENTED
    assert error.metadata == {"method": f"{MODEL}/GetModel"}
    frames = bench.other.WatchInstances(discovery_pb2.WatchInstancesRequest(), timeout=60.0)
    error = await failure(collect(frames))
    assert error.metadata == {"method": f"{DISCOVERY}/WatchInstances"}


async def overdue(call: Callable[[float], Any], reached: Callable[[], bool]) -> MeshError:
    """The error of a call that hangs until its deadline, and has come as far as wanted by then.

    On a busy machine it may take longer than a short deadline to get there: then with a longer one.
    """
    for timeout in (0.2, 2.0, 15.0):
        error = await failure(call(timeout))
        if reached():
            break
    return error


async def test_a_deadline_ends_a_unary_call_and_its_servicer(bench: Bench) -> None:
    error = await overdue(
        lambda timeout: bench.peer.CreateResponse(unary("hang"), timeout=timeout),
        bench.probe.started.is_set,
    )
    assert error.reason == errors_pb2.ERROR_REASON_DEADLINE_PASSED
    assert error.code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert error.metadata["method"] == f"{MODEL}/CreateResponse"
    await asyncio.wait_for(bench.probe.cancelled.wait(), 60)


@pytest.mark.parametrize("behaviour", ["hang", "flood", "drip"])
async def test_a_deadline_ends_a_stream_in_its_middle(bench: Bench, behaviour: str) -> None:
    seen: list[int] = []

    def call(timeout: float) -> Any:
        seen.clear()
        return read(bench.peer.StreamResponse(stream(behaviour), timeout=timeout), seen)

    error = await overdue(call, lambda: len(seen) >= 2)
    assert seen[:2] == [0, 1]
    assert error.reason == errors_pb2.ERROR_REASON_DEADLINE_PASSED
    assert error.metadata["method"] == f"{MODEL}/StreamResponse"
    await asyncio.wait_for(bench.probe.closed.wait(), 60)


@pytest.mark.parametrize("timeout", [0.0, -1.0])
async def test_a_deadline_that_has_passed_already(bench: Bench, timeout: float) -> None:
    error = await failure(bench.peer.CreateResponse(unary("ok"), timeout=timeout))
    assert error.reason == errors_pb2.ERROR_REASON_DEADLINE_PASSED
    error = await failure(collect(bench.peer.StreamResponse(stream("ok"), timeout=timeout)))
    assert error.reason == errors_pb2.ERROR_REASON_DEADLINE_PASSED
    assert bench.probe.requests == []


async def test_cancelling_the_caller_reaches_the_servicer(bench: Bench) -> None:
    task = asyncio.create_task(bench.peer.CreateResponse(unary("hang"), timeout=60.0))
    await asyncio.wait_for(bench.probe.started.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(bench.probe.cancelled.wait(), 60)


async def test_cancelling_a_reader_reaches_the_servicer(bench: Bench) -> None:
    frames = bench.peer.StreamResponse(stream("hang"), timeout=60.0)
    task = asyncio.create_task(collect(frames))
    await asyncio.wait_for(bench.probe.started.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(bench.probe.closed.wait(), 60)


async def test_leaving_the_loop_closes_the_servicers_generator(bench: Bench) -> None:
    async with aclosing(bench.peer.StreamResponse(stream("drip"), timeout=60.0)) as frames:
        async for frame in frames:
            if frame.delta.output_index == 2:
                break
        assert not bench.probe.closed.is_set()
    await asyncio.wait_for(bench.probe.closed.wait(), 60)


async def test_a_slow_reader_is_not_cancelled_by_the_deadlines_timer(bench: Bench) -> None:
    # A timeout left open across a yield would cancel what the reader is doing.
    async with aclosing(bench.peer.StreamResponse(stream("hang"), timeout=5.0)) as frames:
        async for _frame in frames:
            await asyncio.sleep(5.2)
            break
    await asyncio.wait_for(bench.probe.closed.wait(), 60)


async def test_a_large_message_goes_both_ways(bench: Bench) -> None:
    big = "x" * (5 * 1024 * 1024)
    reply = await bench.peer.CreateResponse(unary("ok", request_id=big), timeout=60.0)
    assert len(reply.call_id) == len(big)


async def test_two_thousand_calls_at_once(bench: Bench) -> None:
    calls = (
        bench.peer.CreateResponse(unary("ok", request_id=f"r-{index}"), timeout=60.0)
        for index in range(2000)
    )
    replies = await asyncio.gather(*calls)
    assert [reply.call_id for reply in replies] == [f"r-{index}" for index in range(2000)]


async def test_calls_are_counted_by_method_and_code(bench: Bench) -> None:
    def count(code: str) -> float:
        labels = {"method": f"{MODEL}/CreateResponse", "code": code}
        return metrics.REGISTRY.get_sample_value("gymmesh_rpcs_total", labels) or 0.0

    before = [count("OK"), count("RESOURCE_EXHAUSTED"), count("INVALID_ARGUMENT")]
    await bench.peer.CreateResponse(unary("ok"), timeout=60.0)
    await failure(bench.peer.CreateResponse(unary("typed"), timeout=60.0))
    await failure(
        bench.peer.CreateResponse(model_pb2.CreateResponseRequest(), timeout=60.0),
    )
    after = [count("OK"), count("RESOURCE_EXHAUSTED"), count("INVALID_ARGUMENT")]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1, 1]


async def test_direct_hands_the_very_message_over() -> None:
    probe = Probe()
    async with PATHS["direct"]({MODEL: probe}) as directory:
        peer = directory.peer(await directory.pick(MODEL, "policy"))
        request = unary("ok")
        await peer.CreateResponse(request, timeout=60.0)
        assert probe.requests[0] is request


def test_reason_names_of_later_contracts_do_not_fail() -> None:
    assert reason_name(999_999) == "UNKNOWN_999999"
