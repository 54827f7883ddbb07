"""What is left of a call that ended with an error: nothing, and at once."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.wire.aborting import EndStatus
from tests.unit.runtime.probe import MODEL, served, stream, unary, until


class Refusing:
    """Refuses all, and knows whether what it refused with is still there."""

    def __init__(self) -> None:
        self.errors: list[weakref.ref[MeshError]] = []

    async def CreateResponse(self, request: Any, context: Any) -> Any:
        raise self._error()

    async def StreamResponse(self, request: Any, context: Any) -> AsyncIterator[Any]:
        raise self._error()
        yield  # makes this an async generator

    def _error(self) -> MeshError:
        error = MeshError(errors_pb2.ERROR_REASON_FIELD_INVALID, "no")
        self.errors.append(weakref.ref(error))
        return error


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Without the garbage collection that would break cycles up some day."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    ("method", "request_"), [("CreateResponse", unary("a")), ("StreamResponse", stream("a"))]
)
async def test_the_error_is_not_held_by_the_call(
    uncollected: None, method: str, request_: Any
) -> None:
    """Its traceback holds the request, which may be large."""
    refusing = Refusing()
    async with (
        served({MODEL: refusing}) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        untyped: Any = channel
        for _ in range(5):
            rpc = untyped.unary_stream(f"/{MODEL}/{method}")(request_.SerializeToString())
            assert await rpc.code() is grpc.StatusCode.INVALID_ARGUMENT
        await until(lambda: [one() for one in refusing.errors] == [None] * 5)


@pytest.mark.parametrize("over", [grpc.aio.InternalError, grpc.aio.UsageError])
async def test_a_call_that_is_over_before_its_error_is_sent(over: type[Exception]) -> None:
    """What gRPC raises then depends on which of two threads was first, so it is raised here."""

    class Over:
        async def abort(self, *_: object, **__: object) -> None:
            raise over("it is over")

    rpc: Any = Over()
    late = MeshError(errors_pb2.ERROR_REASON_DEADLINE_PASSED, "too late")
    await EndStatus.of(late).send(rpc)
