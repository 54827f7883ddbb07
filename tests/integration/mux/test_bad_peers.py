"""Peers that break the protocol, go away, stand still or do not read."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from gymmesh_runtime.errors import STATUS_DETAILS_KEY, from_status
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.sizes import MIB
from gymmesh_runtime.wire import channels
from gymmesh_runtime.wire.mux.assembly import AssemblyBudget
from gymmesh_runtime.wire.mux.frames import (
    MAX_MESSAGE,
    Begin,
    Chunk,
    Message,
    pack,
    unpack,
)
from gymmesh_runtime.wire.mux.table import TableLimits
from gymmesh_runtime.wire.options import channel_options
from tests.integration.mux.servers import Reason, Server, exchange, failure, probe_process
from tests.unit.runtime.probe import MODEL, Probe, instance_at, stream, unary, until


def begun(number: int = 1, payload: bytes | None = None, *, more: bool = False) -> Begin:
    """Begins a call that hangs, unless it has another request."""
    request = unary("hang").SerializeToString() if payload is None else payload
    return Begin(number, f"{MODEL}/CreateResponse", 600_000, {}, request, more)


async def test_many_peers_that_end_no_message_take_no_more_than_the_budget(
    directory: PeerDirectory,
) -> None:
    budget = AssemblyBudget(16 * MIB)
    server = Server({MODEL: Probe()}, limits=TableLimits(assembly_s=600.0), budget=budget)
    chunk = b"x" * (MIB // 2)
    async with server.running() as address, AsyncExitStack() as stack:
        calls = [await stack.enter_async_context(exchange(address)) for _ in range(40)]
        reasons = []
        for call in calls:
            # So much that no connection may hold it: each gets a refusal, and lives on.
            await call.write(
                pack([begun(payload=chunk, more=True), *[Chunk(1, chunk, False)] * 17])
            )
            (frame,) = unpack(await call.read()).frames
            reasons.append(from_status(frame.end.status).reason)
            assert budget.used <= budget.total
        assert set(reasons) == {Reason.ERROR_REASON_QUEUE_FULL}
        # What was refused is held no more, so each may begin another one: until all is taken.
        for call in calls:
            await call.write(pack([begun(3, payload=chunk, more=True)]))
        await until(lambda: budget.used >= 7 * MIB)
        assert budget.used <= budget.total
        # Others are served, with requests of any size that there is room for.
        peer = directory.peer(instance_at(address))
        for size in (10, 400_000):
            request = unary("ok", request_id="y" * size)
            assert len((await peer.CreateResponse(request, timeout=60.0)).call_id) == size
    await until(lambda: budget.used == 0)


async def test_a_request_whose_end_does_not_come_is_given_up() -> None:
    budget = AssemblyBudget()
    server = Server({MODEL: Probe()}, limits=TableLimits(assembly_s=0.05), budget=budget)
    async with server.running() as address, exchange(address) as call:
        await call.write(pack([begun(payload=b"x" * 1000, more=True)]))
        (frame,) = unpack(await call.read()).frames
        error = from_status(frame.end.status)
        assert error.reason == Reason.ERROR_REASON_DEADLINE_PASSED
        assert error.message == "the request did not arrive within 0.05 s"
        assert budget.used == 0


async def test_chunks_for_a_method_that_is_not_there_are_not_kept() -> None:
    budget = AssemblyBudget()
    server = Server({MODEL: Probe()}, budget=budget)
    async with server.running() as address, exchange(address) as call:
        await call.write(pack([Begin(1, "s/M", 0, {}, b"x" * 1000, True, 0)]))
        (frame,) = unpack(await call.read()).frames
        assert from_status(frame.end.status).reason == Reason.ERROR_REASON_NOT_OFFERED
        assert budget.used == 0


async def _read_all(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


@pytest.mark.parametrize(
    "data",
    [
        b"garbage",
        pack([Message(1, b"", False)]),
        pack([begun(payload=b"x" * (MIB + 1))]),
        pack([begun(), begun()]),
    ],
)
async def test_garbage_ends_its_own_stream_only(directory: PeerDirectory, data: bytes) -> None:
    server = Server({MODEL: Probe()})
    async with server.running() as address:
        peer = directory.peer(instance_at(address))
        await peer.CreateResponse(unary("ok"), timeout=60.0)
        async with exchange(address) as call:
            await call.write(data)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await asyncio.wait_for(_read_all(call), 60)
            trailers: Any = caught.value.trailing_metadata()
            assert b"MUX_BROKEN" in dict(trailers)[STATUS_DETAILS_KEY]
        await peer.CreateResponse(unary("ok"), timeout=60.0)
        await until(lambda: len(server.mux._exchanges) == 1)


async def test_a_client_that_goes_away_has_its_calls_stopped() -> None:
    probe = Probe()
    server = Server({MODEL: probe})
    async with server.running() as address:
        async with exchange(address) as call:
            await call.write(pack([begun()]))
            await asyncio.wait_for(probe.started.wait(), 60)
        await asyncio.wait_for(probe.cancelled.wait(), 60)
        await until(lambda: len(server.mux._exchanges) == 0)


async def test_a_message_over_the_limit_fails_its_own_call_only(directory: PeerDirectory) -> None:
    server = Server({MODEL: Probe()})
    async with server.running() as address:
        peer = directory.peer(instance_at(address))
        error = await failure(
            peer.CreateResponse(unary("ok", request_id="x" * (MAX_MESSAGE + 1)), timeout=60.0)
        )
        assert error.reason == Reason.ERROR_REASON_MESSAGE_TOO_LARGE
        await peer.CreateResponse(unary("ok"), timeout=60.0)


async def test_a_peer_that_stands_still_is_bounded_by_deadlines(directory: PeerDirectory) -> None:
    async with probe_process() as (process, address):
        peer = directory.peer(instance_at(address))
        await peer.CreateResponse(unary("ok"), timeout=60.0)
        process.send_signal(signal.SIGSTOP)
        calls = [peer.CreateResponse(unary("ok"), timeout=0.5) for _ in range(100)]
        for error in await asyncio.gather(*map(failure, calls)):
            assert error.reason == Reason.ERROR_REASON_DEADLINE_PASSED
        process.send_signal(signal.SIGCONT)
        reply = await peer.CreateResponse(unary("ok", request_id="again"), timeout=60.0)
        assert reply.call_id == "again"


async def test_a_peer_that_stands_still_is_noticed_by_keepalive(
    directory: PeerDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    pings = ("grpc.keepalive_time_ms", "grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms")
    ours = channel_options()
    assert {name for name, _ in ours} >= set(pings)
    # The first is the time between pings; the others bound what a busy machine takes to answer one.
    times = dict(zip(pings, (1000, 4000, 4000), strict=True))
    impatient = [(name, times.get(name, value)) for name, value in ours]
    monkeypatch.setattr(channels, "channel_options", lambda _: impatient)
    async with probe_process() as (process, address):
        peer = directory.peer(instance_at(address))
        await peer.CreateResponse(unary("ok"), timeout=60.0)
        process.send_signal(signal.SIGSTOP)
        error = await failure(peer.CreateResponse(unary("ok"), timeout=600.0))
        assert error.reason == Reason.ERROR_REASON_MUX_BROKEN
        assert error.metadata == {"address": address}


async def test_a_reader_that_does_not_read_costs_little_memory() -> None:
    async with probe_process() as (process, address), exchange(address) as call:
        before = resident(process.pid)
        method = f"{MODEL}/StreamResponse"
        flood = stream("flood").SerializeToString()
        begins = [
            Begin(number, method, 60_000, {}, flood, False, 2**31 - 1)
            for number in range(1, 101, 2)
        ]
        await call.write(pack(begins))
        await asyncio.sleep(3.0)  # as much as fifty endless streams send meanwhile
        assert resident(process.pid) - before < 64 * MIB
        async with grpc.aio.insecure_channel(address) as other:  # and it serves others
            ask: Any = other.unary_unary(f"/{MODEL}/CreateResponse")
            await ask(unary("ok").SerializeToString(), timeout=60)


def resident(pid: int) -> int:
    """The memory of a process in bytes."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
