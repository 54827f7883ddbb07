"""One end of a exchange of the mux, with a hand that writes and reads the other end's frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gymmesh.model.v1 import model_pb2
from gymmesh.mux.v1 import mux_pb2
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.contract import methods_of
from gymmesh_runtime.errors import MeshError, from_status
from gymmesh_runtime.wire.mux.calling import call_unary
from gymmesh_runtime.wire.mux.exchange import Exchange
from gymmesh_runtime.wire.mux.frames import (
    Begin,
    Frame,
    pack,
    unpack,
)
from gymmesh_runtime.wire.mux.table import TableLimits
from tests.unit.runtime.probe import MODEL, Probe

UNARY = methods_of(MODEL)["CreateResponse"]
STREAM = methods_of(MODEL)["StreamResponse"]
SMALL = TableLimits(calls=100, message_bytes=1000, assembly_bytes=1500, call_bytes=0)


class Hand:
    """The other end: what it sends is written by the test, what it gets is read there."""

    def __init__(self) -> None:
        self._to: asyncio.Queue[bytes | MeshError | None] = asyncio.Queue()
        self._from: asyncio.Queue[bytes] = asyncio.Queue()
        self._frames: list[mux_pb2.Frame] = []
        self.reads = asyncio.Event()  # cleared: it does not read
        self.reads.set()
        self.ended = asyncio.Event()  # the exchange said that it sends no more

    # the exchange's side

    async def read(self) -> bytes | None:
        data = await self._to.get()
        if isinstance(data, MeshError):
            raise data
        return data

    async def write(self, data: bytes) -> None:
        await self.reads.wait()
        self._from.put_nowait(data)

    async def end(self) -> None:
        self.ended.set()

    # the test's side

    def send(self, *frames: Frame) -> None:
        self.send_raw(pack(frames))

    def send_raw(self, data: bytes | MeshError | None) -> None:
        self._to.put_nowait(data)

    async def get(self) -> mux_pb2.Frame:
        while not self._frames:
            self._frames = list(unpack(await asyncio.wait_for(self._from.get(), 60)).frames)
        return self._frames.pop(0)

    async def get_batch(self) -> mux_pb2.ExchangeRequest:
        assert not self._frames
        return unpack(await asyncio.wait_for(self._from.get(), 60))

    async def quiet(self, seconds: float = 0.05) -> bool:
        """Whether nothing comes for a while."""
        await asyncio.sleep(seconds)
        return not self._frames and self._from.empty()

    async def error(self) -> MeshError:
        """The error of the next frame, which must be an end."""
        frame = await self.get()
        assert frame.WhichOneof("kind") == "end", frame
        return from_status(frame.end.status)


class Served:
    """A server's end."""

    def __init__(
        self, hand: Hand, probe: Probe, exchange: Exchange, running: asyncio.Task[None]
    ) -> None:
        self.hand = hand
        self.probe = probe
        self.exchange = exchange
        self.running = running

    def begin(self, number: int, request: Any, **fields: Any) -> None:
        method = STREAM if isinstance(request, model_pb2.StreamResponseRequest) else UNARY
        self.hand.send(
            Begin(
                number,
                fields.get("method", method.full_name),
                fields.get("timeout_ms", 20_000),
                {},
                request if isinstance(request, bytes) else request.SerializeToString(),
                fields.get("more", False),
                fields.get("credit", 0),
            )
        )


@asynccontextmanager
async def end_of(hand: Hand, **options: Any) -> AsyncIterator[tuple[Exchange, asyncio.Task[None]]]:
    exchange = Exchange(hand, peer="hand", **options)
    running = asyncio.create_task(exchange.run())
    try:
        yield exchange, running
    finally:
        exchange.cut()
        await asyncio.wait_for(running, 60)


@asynccontextmanager
async def serving_end() -> AsyncIterator[Served]:
    """A server's end, with small limits."""
    hand, probe = Hand(), Probe()
    methods = {one.spec.full_name: one for one in Binding(MODEL, probe).methods.values()}
    async with end_of(hand, opener=False, methods=methods, limits=SMALL) as (exchange, running):
        yield Served(hand, probe, exchange, running)


@asynccontextmanager
async def calling_end() -> AsyncIterator[tuple[Hand, Exchange]]:
    """A client's end."""
    hand = Hand()
    async with end_of(hand, opener=True) as (exchange, _):
        yield hand, exchange


def call(exchange: Exchange, request: Any, timeout: float = 20.0) -> asyncio.Task[Any]:
    return asyncio.create_task(call_unary(exchange, UNARY, request, timeout, {}))


def first_of(messages: AsyncIterator[Any]) -> asyncio.Task[Any]:
    async def read() -> Any:
        return await anext(messages)

    return asyncio.create_task(read())


async def failure(awaitable: Any) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await asyncio.wait_for(awaitable, 60)
    return caught.value
