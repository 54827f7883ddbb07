"""All collectors of an agent: hello, resumption, free places, load and shutdown."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import Final

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_agent.collect_stream import errors, metrics
from gymmesh_agent.collect_stream.collector import CollectorClient, CollectorConnection, Host
from gymmesh_agent.collect_stream.config import CollectConfig
from gymmesh_agent.collect_stream.run_queue import fair_share, next_to_start
from gymmesh_runtime.contract import CONTRACT_VERSION, required_fields, speaks_ours
from gymmesh_runtime.errors import MeshError, queue_full, unforeseen
from gymmesh_runtime.names import check_name
from gymmesh_runtime.security import owned

_HELLO_S: Final = 10.0
_MAX_COLLECTORS: Final = 1024
_TICK_S: Final = 0.25
_FLUSH_S: Final = 1.0
_MAX_CURSOR: Final = 2**62
_MAX_VERSION: Final = 32


class CollectServer:
    """Serves collectors.

    Args:
        host: runs the attempts.
    """

    def __init__(self, host: Host, config: CollectConfig, instance_id: str) -> None:
        self._host = host
        self._config = config
        self._instance_id = instance_id
        self._collectors: dict[str, CollectorClient] = {}  # by stream id
        self._finished: dict[str, int] = {}  # of streams with nothing more to do: the last cursor
        self._ticks: asyncio.Task[None] | None = None
        self._draining = False
        self._stop_at = math.inf
        self._connections = 0
        self._all_left = asyncio.Event()

    async def serve(
        self, requests: AsyncIterator[agent_pb2.CollectRequest], identity: str = ""
    ) -> AsyncGenerator[agent_pb2.CollectResponse, None]:
        """Serve one connection of a collector, from hello to its end.

        Streams belong to the caller's identity.

        Raises:
            MeshError: the collector breaks the contract, another connection took over the stream,
                or the agent shuts down.
        """
        hello = await _read_hello(requests)
        stream_id = owned(identity, hello.stream_id)
        collector, resumed = self._open(hello, stream_id)
        connection = CollectorConnection(self._config.flush_ms / 1000)
        collector.connect(connection)
        reader = asyncio.create_task(self._read(requests, collector, connection))
        self._connections += 1
        self._all_left.clear()
        try:
            yield self._welcome(resumed)
            more = True
            while more:
                more = await connection.wait()
                for message in collector.outgoing(connection):
                    yield message
            if connection.error is not None:
                raise connection.error
        finally:
            connection.end()
            reader.cancel()
            self._connections -= 1
            if not self._connections:
                self._all_left.set()
            collector.disconnect(connection)
            if connection.finishing and collector.lost_at and collector.stream.empty:
                self._finish(stream_id, collector)

    def drain(self, grace_s: float) -> None:
        """Start no further attempts. Running attempts may end within `grace_s` seconds, and are
        then cancelled.
        """
        if self._draining:
            return
        self._draining = True
        self._stop_at = time.monotonic() + grace_s
        for collector in self._collectors.values():
            collector.stream.refuse_all(errors.draining(self._host.name))
            collector.send()

    async def close(self) -> None:
        """End all streams, after a short wait for events that are being sent."""
        self.drain(0.0)
        tasks = [task for one in self._collectors.values() for task in one.stop()]
        if tasks:
            await asyncio.wait(tasks, timeout=_FLUSH_S)
        for collector in self._collectors.values():
            if collector.connection is not None:
                collector.connection.end(errors.draining(self._host.name))
        if self._connections:
            with suppress(TimeoutError):
                async with asyncio.timeout(_FLUSH_S):
                    await self._all_left.wait()
        for stream_id, collector in list(self._collectors.items()):
            self._forget(stream_id, collector)
        if self._ticks is not None:
            self._ticks.cancel()

    def _open(self, hello: agent_pb2.CollectHello, stream_id: str) -> tuple[CollectorClient, bool]:
        """The collector that says hello, and whether its stream is resumed or new."""
        known = self._collectors.get(stream_id)
        if known is not None and known.stream.resume(hello.last_cursor, hello.credit):
            return known, True
        if self._draining:
            raise errors.draining(self._host.name)
        if known is not None:
            self._forget(stream_id, known)
        elif len(self._collectors) >= _MAX_COLLECTORS:
            why = f"the agent already serves {_MAX_COLLECTORS} collectors, the maximum"
            raise queue_full(why, "collectors", _MAX_COLLECTORS)
        # Cursors go on growing, and leave one out: a collector that did not hear that its stream
        # is lost, and asks once more, must not find it.
        lost = hello.last_cursor not in (0, self._finished.pop(stream_id, 0))
        cursor = min(hello.last_cursor, _MAX_CURSOR) + lost
        new = CollectorClient(self._host, self._config, self._on_change, cursor=cursor)
        new.stream.resume(0, hello.credit)
        self._collectors[stream_id] = new
        self._count()
        if self._ticks is None or self._ticks.done():
            self._ticks = asyncio.create_task(self._tick_on())
        return new, not lost

    def _welcome(self, resumed: bool) -> agent_pb2.CollectResponse:
        welcome = agent_pb2.CollectWelcome(
            resumed=resumed,
            resume_window_s=int(self._config.resume_window_s),
            capacity=self._config.capacity,
            instance_id=self._instance_id,
            contract_version=CONTRACT_VERSION,
        )
        return agent_pb2.CollectResponse(welcome=welcome)

    def _receive(
        self,
        request: agent_pb2.CollectRequest,
        collector: CollectorClient,
        connection: CollectorConnection,
    ) -> bool:
        """Carry out a message; False if the message ended the connection with an error."""
        try:
            collector.receive(request)
            self._start_attempts()
        except Exception as error:
            typed = error if isinstance(error, MeshError) else unforeseen(error, errors.METHOD)
            connection.end(typed)
            return False
        return True

    async def _read(
        self,
        requests: AsyncIterator[agent_pb2.CollectRequest],
        collector: CollectorClient,
        connection: CollectorConnection,
    ) -> None:
        """Carry out the messages of a connection until it ends."""
        try:
            async for request in requests:
                if collector.connection is not connection:
                    return  # taken over: the newer connection says the same
                if not self._receive(request, collector, connection):
                    return
        except MeshError as error:
            connection.end(error)
        except Exception:  # the connection broke; the writer reports it
            connection.end()
        else:
            # The collector has said all; what it asked for is still done.
            connection.finishing = True
            self._end_where_done(collector)

    def _on_change(self, collector: CollectorClient) -> None:
        """An attempt of a collector has ended."""
        self._start_attempts()
        if not collector.queue.running:
            self._end_where_done(collector)

    def _start_attempts(self) -> None:
        """Start waiting attempts in free places."""
        collectors, capacity = self._collectors.values(), self._config.capacity
        while (collector := next_to_start(collectors, capacity)) is not None:
            collector.start_next()

    def _end_where_done(self, collector: CollectorClient) -> None:
        """End a connection that has nothing more to do."""
        connection = collector.connection
        if connection is None or not collector.queue.idle:
            return
        if connection.finishing:
            connection.end()
        elif self._draining and collector.stream.settled:
            connection.end(errors.draining(self._host.name))

    def _finish(self, stream_id: str, collector: CollectorClient) -> None:
        """Forget a stream that has nothing more to do, except the cursor at which it could be
        resumed.

        The collector reconnects if it had more to say: gRPC ends the requests of a broken
        connection in the same way as those of a finished one.
        """
        if self._collectors.get(stream_id) is collector:
            self._finished[stream_id] = collector.stream.buffer.last
            if len(self._finished) > _MAX_COLLECTORS:
                del self._finished[next(iter(self._finished))]
        self._forget(stream_id, collector)

    def _forget(self, stream_id: str, collector: CollectorClient) -> None:
        if self._collectors.get(stream_id) is collector:
            del self._collectors[stream_id]
        collector.abandon()
        self._count()

    async def _tick_on(self) -> None:
        """Do what depends on the time, as long as there are collectors."""
        while self._collectors:
            await asyncio.sleep(_TICK_S)
            self._tick(time.monotonic())

    def _tick(self, now: float) -> None:
        target = fair_share(self._config.capacity, len(self._collectors))
        for stream_id, collector in list(self._collectors.items()):
            lost_at = collector.lost_at
            if lost_at is not None and now - lost_at >= self._config.resume_window_s:
                self._forget(stream_id, collector)
                continue
            if now >= self._stop_at:
                collector.stop()
            collector.stream.refuse_overdue(now)
            collector.stream.report_load(now, target, self._config.capacity)
            collector.send()
            self._end_where_done(collector)
        self._count()

    def _count(self) -> None:
        name = self._host.name
        waiting = sum(len(one.queue.waiting) for one in self._collectors.values())
        metrics.COLLECT_CAPACITY.labels(name).set(self._config.capacity)
        metrics.COLLECT_STREAMS.labels(name).set(len(self._collectors))
        metrics.COLLECT_WAITING.labels(name).set(waiting)


async def _read_hello(requests: AsyncIterator[agent_pb2.CollectRequest]) -> agent_pb2.CollectHello:
    """The first message. Raises MeshError if it is not a hello, or if no message arrives in
    time.
    """
    request = agent_pb2.CollectRequest()
    try:
        async with asyncio.timeout(_HELLO_S):
            with suppress(StopAsyncIteration):
                request = await anext(aiter(requests))
    except TimeoutError:
        raise errors.too_late(f"no hello message arrived within {_HELLO_S:g} s") from None
    if not request.HasField("hello"):
        raise errors.no_hello("hello")
    missing = required_fields(agent_pb2.CollectRequest)(request)
    if missing is not None:
        raise errors.no_hello(missing)
    check_name("hello.stream_id", request.hello.stream_id)
    _check_contract(request.hello.contract_version)
    return request.hello


def _check_contract(theirs: str) -> None:
    theirs = theirs[:_MAX_VERSION]
    if not speaks_ours(theirs):
        raise MeshError(
            errors_pb2.ERROR_REASON_CONTRACT_MISMATCH,
            f"the collector has contract version {theirs!r}, but this agent has "
            f"{CONTRACT_VERSION}; update the older of the two programs",
            metadata={"ours": CONTRACT_VERSION, "theirs": theirs},
        )
