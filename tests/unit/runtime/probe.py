"""A model service whose every behaviour a test can ask for, and the paths on which it is called."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory, TransportName
from gymmesh_runtime.wire.server import MeshServer

MODEL = "gymmesh.model.v1.ModelService"
DISCOVERY = "gymmesh.discovery.v1.DiscoveryService"
SECRET_WORDS = "the password is swordfish"


def unary(behaviour: str, **fields: Any) -> model_pb2.CreateResponseRequest:
    """A request that asks the probe for a behaviour."""
    params = responses_pb2.ResponseParams()
    return model_pb2.CreateResponseRequest(params=params, rollout_id=behaviour, **fields)


def stream(behaviour: str) -> model_pb2.StreamResponseRequest:
    """The same for a stream."""
    return model_pb2.StreamResponseRequest(call=unary(behaviour))


def delta(index: int) -> model_pb2.StreamResponseResponse:
    """One frame."""
    return model_pb2.StreamResponseResponse(delta=model_pb2.ResponseDelta(output_index=index))


class Probe:
    """Behaves as the request's rollout_id says. Offers neither GetModel nor AbortResponse."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.closed = asyncio.Event()
        self.contexts: list[CallContext] = []
        self.requests: list[Any] = []

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, context: CallContext
    ) -> model_pb2.CreateResponseResponse:
        self.contexts.append(context)
        self.requests.append(request)
        if request.rollout_id == "hang":
            await self._hang()
        await fail(request.rollout_id)
        return model_pb2.CreateResponseResponse(
            call_id=request.request_id,
            response=responses_pb2.Response(id=request.call_id),
        )

    async def StreamResponse(
        self, request: model_pb2.StreamResponseRequest, context: CallContext
    ) -> AsyncIterator[model_pb2.StreamResponseResponse]:
        behaviour = request.call.rollout_id
        self.contexts.append(context)
        try:
            yield delta(0)
            yield delta(1)
            self.started.set()
            if behaviour == "hang":
                await self._hang()
            if behaviour == "flood":  # never waits: only the runtime can stop it
                while True:
                    yield delta(2)
            if behaviour == "drip":
                for index in range(2, 1_000_000):
                    await asyncio.sleep(0.005)
                    yield delta(index)
            await fail(behaviour)
            yield delta(2)
        finally:
            self.closed.set()

    async def _hang(self) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


async def fail(behaviour: str) -> None:
    """Fails in the way asked for, if any."""
    if behaviour == "typed":
        raise MeshError(
            errors_pb2.ERROR_REASON_QUEUE_FULL,
            "the queue is full — try later",
            metadata={"queue": "model", "limit": "4096"},
            retry_after_s=1.5,
        )
    if behaviour == "surrogate":
        raise MeshError(
            errors_pb2.ERROR_REASON_TOOL_NOT_FOUND,
            "no tool named 'x\ud800y'\nsecond line\x00",
            metadata={"tool": "x\ud800y"},
        )
    if behaviour == "long":
        raise MeshError(
            errors_pb2.ERROR_REASON_FIELD_INVALID, "€" * 100_000, metadata={"field": "ü" * 100_000}
        )
    if behaviour == "unforeseen":
        raise ValueError(SECRET_WORDS)
    if behaviour == "timeout":
        raise TimeoutError(SECRET_WORDS)


async def until(condition: Callable[[], object], seconds: float = 120.0) -> None:
    """Waits until something holds that says nothing when it comes about."""
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"not so after {seconds} s")


PathOf = Callable[[Mapping[str, object]], AbstractAsyncContextManager[PeerDirectory]]


def instance_at(
    address: str, *, instance_id: str = "probe-0", service: str = MODEL, name: str = "policy"
) -> discovery_pb2.Instance:
    """An instance that serves."""
    return discovery_pb2.Instance(
        id=instance_id,
        service=service,
        name=name,
        address=address,
        health=discovery_pb2.HEALTH_SERVING,
    )


@asynccontextmanager
async def served(servicers: Mapping[str, object], port: int = 0) -> AsyncIterator[str]:
    """Serves over gRPC on a port of the system's choice; gives the address."""
    server = MeshServer(Binding(service, one) for service, one in servicers.items())
    bound = await server.start("127.0.0.1", port)
    try:
        yield f"127.0.0.1:{bound}"
    finally:
        await server.stop(0)


@asynccontextmanager
async def direct(servicers: Mapping[str, object]) -> AsyncIterator[PeerDirectory]:
    """The direct path."""
    async with contextlib.aclosing(_Closing(PeerDirectory())) as closing:
        closing.directory.add_direct(instance_at("direct:probe"), servicers)
        yield closing.directory


@asynccontextmanager
async def plain(servicers: Mapping[str, object]) -> AsyncIterator[PeerDirectory]:
    """The path over plain gRPC."""
    async with elsewhere(servicers, "plain") as directory:
        yield directory


@asynccontextmanager
async def mux(servicers: Mapping[str, object]) -> AsyncIterator[PeerDirectory]:
    """The path over the mux."""
    async with elsewhere(servicers, "auto") as directory:
        yield directory


@asynccontextmanager
async def elsewhere(
    servicers: Mapping[str, object], transport: TransportName
) -> AsyncIterator[PeerDirectory]:
    """A path over a socket."""
    async with (
        served(servicers) as address,
        contextlib.aclosing(_Closing(PeerDirectory(transport=transport))) as closing,
    ):
        closing.directory.upsert(instance_at(address))
        yield closing.directory


class _Closing:
    def __init__(self, directory: PeerDirectory) -> None:
        self.directory = directory

    async def aclose(self) -> None:
        await self.directory.close()


#: Every path on which a call can travel.
PATHS: dict[str, PathOf] = {"direct": direct, "mux": mux, "plain": plain}
