"""All streams of an agent: hello, takeover, places, load and shutdown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import Final

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_agent.collect.config import CollectConfig
from gymmesh_agent.collect.line import Line
from gymmesh_agent.collect.problems import METHOD
from gymmesh_agent.collect.roster import fair_share, whose_turn
from gymmesh_agent.collect.stream import CollectStream, Host
from gymmesh_runtime import metrics
from gymmesh_runtime.contract import CONTRACT_VERSION, required_fields
from gymmesh_runtime.errors import MeshError, unforeseen
from gymmesh_runtime.security.ownership import owned
from gymmesh_runtime.text.names import check_name

_HELLO_S: Final = 10.0
_MAX_STREAMS: Final = 1024
_TICK_S: Final = 0.25
# How often a collector hears how busy the agent is: when that changes, and in any case.
_LOAD_S: Final = 1.0
_HEARTBEAT_S: Final = 8.0
_FLUSH_S: Final = 1.0
_MAX_CURSOR: Final = 2**62
_MAX_VERSION: Final = 32


class CollectDesk:
    """Serves collectors.

    Args:
        host: runs the attempts.
        config: how.
        instance_id: the agent instance's id.
    """

    def __init__(self, host: Host, config: CollectConfig, instance_id: str) -> None:
        self._host = host
        self._config = config
        self._instance_id = instance_id
        self._streams: dict[str, CollectStream] = {}
        self._expiries: dict[str, asyncio.TimerHandle] = {}
        self._told: dict[str, tuple[float, tuple[int, int, int]]] = {}
        self._tick: asyncio.TimerHandle | None = None
        self._draining = False
        self._connected = 0
        self._all_left = asyncio.Event()

    async def serve(
        self, requests: AsyncIterator[agent_pb2.CollectRequest], identity: str = ""
    ) -> AsyncGenerator[agent_pb2.CollectResponse | bytes, None]:
        """One connection of a collector, from hello to its end; batches come in their bytes.
        Streams belong to the caller's identity.

        Raises:
            MeshError: the collector breaks the contract, another connection took the stream over,
                or the agent shuts down.
        """
        hello = await _hello(requests)
        line = Line(self._config.flush_ms / 1000)
        stream_id = owned(identity, hello.stream_id)
        stream, resumed = self._open(hello, stream_id)
        self._keep(stream_id)
        stream.connect(line)
        reader = asyncio.create_task(self._read(requests, stream, line))
        self._connected += 1
        self._all_left.clear()
        try:
            yield self._welcome(resumed)
            more = True
            while more:
                more = await line.called()
                for message in stream.leaving(line):
                    yield message
            if line.error is not None:
                raise line.error
        finally:
            line.end()
            reader.cancel()
            self._connected -= 1
            if not self._connected:
                self._all_left.set()
            if stream.disconnect(line):
                self._lost(stream_id, stream, said_all=line.finishing)

    def drain(self, grace_s: float) -> None:
        """Start nothing more; what runs may end within `grace_s` seconds, then is cancelled."""
        if self._draining:
            return
        self._draining = True
        for stream in self._streams.values():
            stream.refuse_all(self._down())
        loop = asyncio.get_running_loop()
        loop.call_later(grace_s, self._stop_all)
        self._watch()

    async def close(self) -> None:
        """End all streams; the events on their way get a moment to leave."""
        self.drain(0.0)
        overs = self._stop_all()
        if overs:
            await asyncio.wait(overs, timeout=_FLUSH_S)
        for stream in self._streams.values():
            if stream.line is not None:
                stream.line.end(self._down())
        if self._connected:
            with suppress(TimeoutError):
                async with asyncio.timeout(_FLUSH_S):
                    await self._all_left.wait()
        for stream_id, stream in list(self._streams.items()):
            self._forget(stream_id, stream)
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None

    def _schedule(self, changed: CollectStream) -> None:
        """Give free places to those who wait."""
        roster = changed.roster
        # With one collector, hardly any place that becomes free is waited for.
        if roster.waiting or len(self._streams) > 1 or changed.gone:
            self._give_places()
        if not roster.running:
            self._finish(changed)

    def _give_places(self) -> None:
        while (turn := whose_turn(self._streams.values(), self._config.capacity)) is not None:
            stream, count = turn
            for _ in range(count):
                attempt = stream.roster.next()
                if attempt is None:
                    break
                stream.launch(attempt)

    def _open(self, hello: agent_pb2.CollectHello, stream_id: str) -> tuple[CollectStream, bool]:
        """The stream that a hello asks for, and whether it goes on or is new."""
        stream = self._streams.get(stream_id)
        if stream is not None and stream.resume(hello.last_cursor, hello.credit):
            return stream, True
        if self._draining:
            raise self._down()
        if stream is not None:
            self._forget(stream_id, stream)
        elif len(self._streams) >= _MAX_STREAMS:
            raise MeshError(
                errors_pb2.ERROR_REASON_QUEUE_FULL,
                f"the agent serves {_MAX_STREAMS} collectors already",
                metadata={"queue": "collectors", "limit": str(_MAX_STREAMS)},
                retry_after_s=1.0,
            )
        # Cursors go on growing, and leave one out: a collector that did not hear that its stream
        # is lost, and asks once more, must not find it.
        lost = hello.last_cursor > 0
        cursor = min(hello.last_cursor, _MAX_CURSOR) + lost
        fresh = CollectStream(self._host, self._config, self._schedule, cursor=cursor)
        fresh.resume(0, hello.credit)
        self._streams[stream_id] = fresh
        self._count()
        self._watch()
        return fresh, not lost

    def _welcome(self, resumed: bool) -> agent_pb2.CollectResponse:
        welcome = agent_pb2.CollectWelcome(
            resumed=resumed,
            resume_window_s=int(self._config.resume_window_s),
            capacity=self._config.capacity,
            instance_id=self._instance_id,
            contract_version=CONTRACT_VERSION,
        )
        return agent_pb2.CollectResponse(welcome=welcome)

    async def _read(
        self,
        requests: AsyncIterator[agent_pb2.CollectRequest],
        stream: CollectStream,
        line: Line,
    ) -> None:
        try:
            async for request in requests:
                if stream.line is not line:
                    return  # taken over: what still comes here is of no account
                if not self._heed(request, stream, line):
                    return
        except MeshError as error:  # what came cannot be decoded
            line.end(error)
            return
        except Exception:  # the connection broke; whoever writes to it says so
            line.end()
            return
        # The collector has said all; what it asked for is still done.
        line.finishing = True
        self._finish(stream)

    def _heed(self, request: agent_pb2.CollectRequest, stream: CollectStream, line: Line) -> bool:
        """Do what a message says; False when it ends the connection."""
        try:
            stream.receive(request)
        except Exception as exc:
            line.end(exc if isinstance(exc, MeshError) else unforeseen(exc, METHOD))
            return False
        return True

    def _finish(self, stream: CollectStream) -> None:
        line = stream.line
        if line is None or stream.roster.running or stream.roster.waiting or line.closed:
            return
        if line.finishing:
            line.end()
        elif self._draining and stream.settled:
            line.end(self._down())

    def _lost(self, stream_id: str, stream: CollectStream, *, said_all: bool) -> None:
        """Keep an abandoned stream for a while, unless its collector has all it wanted."""
        self._keep(stream_id)
        if said_all and stream.empty:
            self._forget(stream_id, stream)
            return
        self._expiries[stream_id] = asyncio.get_running_loop().call_later(
            self._config.resume_window_s, self._forget, stream_id, stream
        )

    def _keep(self, stream_id: str) -> None:
        expiry = self._expiries.pop(stream_id, None)
        if expiry is not None:
            expiry.cancel()

    def _forget(self, stream_id: str, stream: CollectStream) -> None:
        self._keep(stream_id)
        if self._streams.get(stream_id) is stream:
            del self._streams[stream_id]
            self._told.pop(stream_id, None)
        if stream.line is not None:
            stream.line.end()
        stream.abandon()
        self._count()

    def _stop_all(self) -> list[asyncio.Future[None]]:
        return [over for stream in self._streams.values() for over in stream.stop()]

    def _watch(self) -> None:
        if self._tick is None:
            self._tick = asyncio.get_running_loop().call_later(_TICK_S, self._on_tick)

    def _on_tick(self) -> None:
        self._tick = None
        now = time.monotonic()
        for stream_id, stream in self._streams.items():
            stream.sweep(now)
            self._report(stream_id, stream, now)
            self._finish(stream)
        self._count()
        if self._streams:
            self._watch()

    def _report(self, stream_id: str, stream: CollectStream, now: float) -> None:
        """Say how busy the agent is, when that has changed or much time has passed."""
        roster = stream.roster
        target = fair_share(self._config.capacity, len(self._streams))
        load = (len(roster.running), len(roster.waiting), target)
        told_at, told = self._told.get(stream_id, (0.0, (0, 0, self._config.capacity)))
        silent = now - told_at
        if (load != told and silent >= _LOAD_S) or (not roster.idle and silent >= _HEARTBEAT_S):
            self._told[stream_id] = (now, load)
            stream.say_load(target)

    def _count(self) -> None:
        name = self._host.name
        waiting = sum(len(one.roster.waiting) for one in self._streams.values())
        metrics.COLLECT_CAPACITY.labels(name).set(self._config.capacity)
        metrics.COLLECT_STREAMS.labels(name).set(len(self._streams))
        metrics.COLLECT_WAITING.labels(name).set(waiting)

    def _down(self) -> MeshError:
        message = f"agent '{self._host.name}' is shutting down"
        return MeshError(errors_pb2.ERROR_REASON_DRAINING, message)


async def _hello(requests: AsyncIterator[agent_pb2.CollectRequest]) -> agent_pb2.CollectHello:
    """The first message. Raises MeshError when it is no hello, or none comes in time."""
    request = agent_pb2.CollectRequest()
    try:
        async with asyncio.timeout(_HELLO_S):
            with suppress(StopAsyncIteration):
                request = await anext(aiter(requests))
    except TimeoutError:
        raise MeshError(
            errors_pb2.ERROR_REASON_DEADLINE_PASSED,
            f"no hello came within {_HELLO_S:g} s",
            metadata={"method": METHOD},
        ) from None
    missing = required_fields(agent_pb2.CollectRequest)(request)
    if not request.HasField("hello") or missing is not None:
        field = missing if request.HasField("hello") and missing else "hello"
        raise MeshError(
            errors_pb2.ERROR_REASON_REQUIRED_FIELD_MISSING,
            f"the first message needs the field '{field}'",
            metadata={"field": field, "method": METHOD},
        )
    check_name("hello.stream_id", request.hello.stream_id)
    _check_contract(request.hello.contract_version)
    return request.hello


def _check_contract(theirs: str) -> None:
    theirs = theirs[:_MAX_VERSION]
    if theirs and theirs.partition(".")[0] != CONTRACT_VERSION.partition(".")[0]:
        raise MeshError(
            errors_pb2.ERROR_REASON_CONTRACT_MISMATCH,
            f"the collector speaks contract version {theirs!r}, this agent {CONTRACT_VERSION}",
            metadata={"ours": CONTRACT_VERSION, "theirs": theirs},
        )
