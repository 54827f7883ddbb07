"""How a call ends when its deadline, its caller and its servicer all have a say."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh_runtime import metrics
from gymmesh_runtime.binding import Binding, BoundMethod
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.contract import methods_of
from gymmesh_runtime.errors import MeshError
from tests.unit.runtime.probe import MODEL, unary

_SHORT = 0.02
_METHOD = f"{MODEL}/CreateResponse"
_Work = Callable[[], Awaitable[Any]]


class Servicer:
    """Does what a test gives it."""

    def __init__(self, work: _Work) -> None:
        self._work = work
        self.contexts: list[CallContext] = []

    async def CreateResponse(self, request: Any, context: CallContext) -> Any:
        self.contexts.append(context)
        await self._work()
        return model_pb2.CreateResponseResponse(call_id="done")

    async def StreamResponse(self, request: Any, context: CallContext) -> AsyncIterator[Any]:
        yield model_pb2.StreamResponseResponse()

    async def stream_to(
        self, request: Any, context: CallContext, sink: Callable[[Any], Any]
    ) -> None:
        sink("first")
        await self._work()
        sink("second")


def bound(work: _Work, method: str = "CreateResponse") -> Any:
    """A method whose servicer does this."""
    return Binding(MODEL, Servicer(work)).methods[method]


def counted(code: str) -> float:
    """How many calls ended so."""
    labels = {"method": _METHOD, "code": code}
    return metrics.REGISTRY.get_sample_value("gymmesh_rpcs_total", labels) or 0.0


def nobody_cancels() -> bool:
    """Whether no cancellation is left over in the test's own task."""
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling() == 0


async def hang() -> None:
    await asyncio.Event().wait()


async def swallow() -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await hang()


async def rename() -> None:
    try:
        await hang()
    except asyncio.CancelledError:
        raise TimeoutError("its own") from None


async def refuse() -> None:
    try:
        await hang()
    except asyncio.CancelledError:
        raise MeshError(errors_pb2.ERROR_REASON_QUEUE_FULL, "no room") from None


@pytest.mark.parametrize("work", [hang, rename])
async def test_the_deadline_ends_a_call(work: _Work) -> None:
    before = counted("DEADLINE_EXCEEDED")
    with pytest.raises(MeshError) as caught:
        await bound(work).call(unary("x"), timeout=_SHORT)
    assert caught.value.reason == errors_pb2.ERROR_REASON_DEADLINE_PASSED
    assert caught.value.metadata == {"method": _METHOD}
    assert counted("DEADLINE_EXCEEDED") == before + 1
    assert nobody_cancels()


async def test_a_servicer_may_answer_when_its_time_is_up() -> None:
    reply = await bound(swallow).call(unary("x"), timeout=_SHORT)
    assert reply.call_id == "done"
    assert nobody_cancels()


async def test_a_typed_error_counts_for_more_than_the_deadline() -> None:
    with pytest.raises(MeshError) as caught:
        await bound(refuse).call(unary("x"), timeout=_SHORT)
    assert caught.value.reason == errors_pb2.ERROR_REASON_QUEUE_FULL
    assert nobody_cancels()


async def test_a_call_that_is_cancelled_and_overdue_is_cancelled() -> None:
    async def both() -> None:
        try:
            await hang()
        finally:
            # The deadline passed, and its caller has had enough as well.
            task = asyncio.current_task()
            assert task is not None
            task.cancel()

    before = counted("CANCELLED")
    task = asyncio.create_task(bound(both).call(unary("x"), timeout=_SHORT))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert counted("CANCELLED") == before + 1


async def test_without_a_timeout_there_is_no_deadline() -> None:
    servicer = Servicer(lambda: asyncio.sleep(0))
    method: Any = Binding(MODEL, servicer).methods["CreateResponse"]
    await method.call(unary("x"), timeout=None)
    assert [context.deadline for context in servicer.contexts] == [None]


async def test_a_stream_to_a_sink_is_bounded_as_well() -> None:
    sent: list[Any] = []
    method = BoundMethod(methods_of(MODEL)["StreamResponse"], Servicer(hang).stream_to)
    request = model_pb2.StreamResponseRequest(call=unary("x"))
    with pytest.raises(MeshError) as caught:
        await method.call(request, timeout=_SHORT, sink=sent.append)
    assert caught.value.reason == errors_pb2.ERROR_REASON_DEADLINE_PASSED
    assert sent == ["first"]


async def test_a_stream_to_a_sink_is_checked_as_well() -> None:
    method = BoundMethod(methods_of(MODEL)["StreamResponse"], Servicer(hang).stream_to)
    with pytest.raises(MeshError) as caught:
        await method.call(model_pb2.StreamResponseRequest(), timeout=None, sink=print)
    assert caught.value.reason == errors_pb2.ERROR_REASON_REQUIRED_FIELD_MISSING
