"""The stream to one agent instance, over any number of connections."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from random import Random
from typing import Final, Protocol

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_client.agents import EventSink
from gymmesh_client.collect_stream import metrics
from gymmesh_client.collect_stream.connection import Connection, StreamLimits
from gymmesh_client.collect_stream.state import (
    TRIED_S,
    ClientState,
    Key,
    StreamedAttempt,
    key_of,
)
from gymmesh_runtime.contract import CONTRACT_VERSION, speaks_ours
from gymmesh_runtime.errors import MeshError, copy_of, unavailable, unforeseen
from gymmesh_runtime.sizes import MAX_MESSAGE_BYTES, too_large

_METHOD: Final = "gymmesh.agent.v1.AgentService/Collect"
# In a message of its own, beside what the message adds to it.
_MAX_START: Final = MAX_MESSAGE_BYTES - 1024
# A connection lives as long as it is needed; after a week it is made anew.
_LONGEST_S: Final = 7 * 86_400.0
_CLOSE_S: Final = 2.0
#: The places of an agent that has not said how many it has.
ASSUMED_CAPACITY: Final = 1024
_CHANCE: Final = Random()

# After one of these, connecting again to this instance does not help.
_FINAL: Final = {
    errors_pb2.ERROR_REASON_NOT_OFFERED,
    errors_pb2.ERROR_REASON_CONTRACT_MISMATCH,
    errors_pb2.ERROR_REASON_CONTRACT_VIOLATED,
    errors_pb2.ERROR_REASON_DRAINING,
    errors_pb2.ERROR_REASON_CREDENTIAL_INVALID,
    errors_pb2.ERROR_REASON_NOT_PERMITTED,
    errors_pb2.ERROR_REASON_REQUIRED_FIELD_MISSING,
    errors_pb2.ERROR_REASON_FIELD_INVALID,
    errors_pb2.ERROR_REASON_CALLER_CANCELLED,
}


class CollectPeer(Protocol):
    """What a stream needs of an agent service."""

    def Collect(
        self,
        requests: AsyncIterator[agent_pb2.CollectRequest],
        *,
        timeout: float,
    ) -> AsyncGenerator[agent_pb2.CollectResponse, None]:
        """One connection; MeshError when it breaks."""
        ...


class CollectStream:
    """Runs attempts at one agent instance, over one stream that outlives its connections.

    Args:
        peer: the agent.
        address: the agent's address, for messages.

    Attributes:
        broken: why no further attempt can run on it; None while attempts can.
        capacity: the most concurrent attempts that the agent runs for this stream; 0: unknown.
        load: the agent's last report of its load for this stream; None: no report yet.
    """

    def __init__(self, peer: CollectPeer, address: str, limits: StreamLimits | None = None) -> None:
        self.broken: MeshError | None = None
        self.capacity = 0
        self.load: agent_pb2.CollectLoad | None = None
        self._peer = peer
        self._address = address
        self._limits = limits or StreamLimits()
        self._id = secrets.token_urlsafe(24)
        self._instance = ""  # whose stream it is; empty: none has answered yet
        self._state = ClientState()
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._acknowledged = 0  # said on this connection
        self._owed = 0  # events that came since credit was granted
        self._heard_at = 0.0
        self._progressed = False  # whether anything came after welcome on this connection
        self._closing = False
        # 0 from the start.
        metrics.COLLECT_RECONNECTS.labels()
        metrics.STALE_EVENTS.labels()

    @property
    def in_flight(self) -> int:
        """How many attempts are in flight."""
        return len(self._state.in_flight)

    @property
    def connected(self) -> bool:
        """Whether there is a connection at present."""
        return self._connection is not None

    def busyness(self) -> float:
        """How busy the agent is with this collector's attempts; 1: it has no place left."""
        target = self.load.target if self.load is not None else 0
        return self.in_flight / (target or self.capacity or ASSUMED_CAPACITY)

    async def run(
        self,
        request: agent_pb2.RunRolloutRequest,
        *,
        timeout_s: float,
        on_event: EventSink,
        held: bool = False,
    ) -> None:
        """Run one attempt; `on_event` gets its events in order, each once, to the terminal one.

        With `held`, the agent keeps its events until `stored` says that the outcome is on disk.
        Cancelling the call cancels the attempt.

        Raises:
            MeshError: the agent refused it, or is lost; ROLLOUT_EXISTS when it is in flight;
                MESSAGE_TOO_LARGE when its task is, which ends no other attempt.
            Exception: what `on_event` raised; the attempt is cancelled then.
        """
        if self.broken is not None:
            raise copy_of(self.broken)
        key, size = key_of(request), request.ByteSize()
        if size > _MAX_START:  # alone: others share the stream's messages
            raise too_large(f"attempt {key[1]} of rollout {key[0]}", _MAX_START, size=size)
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def end(error: BaseException | None) -> None:
            if ended.done():
                return
            if error is None:
                ended.set_result(None)
            else:
                ended.set_exception(error)

        attempt = StreamedAttempt(key, request, loop.time() + timeout_s, on_event, end, held)
        self._state.add(attempt)
        if self._connection is not None:
            self._connection.start(attempt, self.in_flight)
        elif self._task is None:
            self._task = asyncio.create_task(self._live())
        try:
            await ended
        except asyncio.CancelledError:
            self._state.abandon(key)
            if self._connection is not None:
                self._connection.cancel(key)
            raise

    def stored(self, key: Key) -> bool:
        """The outcome of an attempt (rollout id, attempt) is on disk; whether it ran here."""
        if not self._state.stored(key):
            return False
        self._acknowledge()
        return True

    async def close(self) -> None:
        """End the stream; attempts in flight are cancelled at the agent."""
        ended = MeshError(errors_pb2.ERROR_REASON_CALLER_CANCELLED, "the collector has stopped")
        self._closing = True
        self.broken = self.broken or ended
        keys = list(self._state.in_flight)
        self._state.fail(ended)
        if self._connection is not None:
            for key in keys:
                self._connection.cancel(key)
            self._acknowledge()
            self._connection.end()
        task, self._task = self._task, None
        if task is not None:
            if self._connection is not None:
                await asyncio.wait({task}, timeout=_CLOSE_S)
            task.cancel()
            await asyncio.wait({task})

    async def _live(self) -> None:
        """Connect, and connect again, for as long as that makes sense."""
        error = MeshError(errors_pb2.ERROR_REASON_CALLER_CANCELLED, "the collector has stopped")
        try:
            error = await self._keep_connected()
        except Exception as fault:
            error = unforeseen(fault, _METHOD)
        finally:
            # Whatever happens, no attempt is left waiting.
            self.broken = self.broken or error
            self._state.fail(error)

    async def _keep_connected(self) -> MeshError:
        """One connection after another; returns why there is no further one."""
        loop, limits = asyncio.get_running_loop(), self._limits
        failing_since = loop.time()
        wait_s = limits.backoff_s
        while True:
            began, self._progressed = loop.time(), False
            error = await self._connect()
            now = loop.time()
            if self._progressed or now - began >= limits.reconnect_s:
                failing_since, wait_s = now, limits.backoff_s
            worth_it = self.capacity > 0 and self._state.in_flight and not self._closing
            given_up = now - failing_since >= limits.reconnect_s
            if given_up:
                error = self._given_up(error)
                error.metadata[TRIED_S] = str(int(now - failing_since))
            if error.reason in _FINAL or given_up or not worth_it:
                return error
            metrics.COLLECT_RECONNECTS.inc()
            # Half of the wait is drawn, so that many collectors do not come back as one.
            await asyncio.sleep(wait_s * (0.5 + _CHANCE.random() / 2))
            wait_s = min(2 * wait_s, limits.backoff_cap_s)

    async def _connect(self) -> MeshError:
        """One connection, from hello to its end; returns why it ended."""
        connection = Connection(self._limits, asyncio.get_running_loop().time)
        reader = asyncio.create_task(self._read(connection))
        watch = asyncio.create_task(self._watch(reader))
        try:
            await asyncio.wait({reader})
        finally:
            self._connection = None
            connection.end()
            watch.cancel()
            reader.cancel()
            await asyncio.wait({reader, watch}, timeout=_CLOSE_S)
        if reader.cancelled():
            return self._unavailable(f"sent nothing for {self._limits.silence_s:g} s")
        fault = reader.exception()
        if fault is None:
            return self._unavailable("ended the stream")
        return fault if isinstance(fault, MeshError) else unforeseen(fault, _METHOD)

    async def _read(self, connection: Connection) -> None:
        """Say hello on a new connection and do what the agent says."""
        hello = self._state.hello(self._id, self._limits.credit, CONTRACT_VERSION)
        responses = self._peer.Collect(connection.requests(hello), timeout=_LONGEST_S)
        async with aclosing(responses):
            await self._read_welcome(responses, connection)
            async for response in responses:
                self._heard_at = asyncio.get_running_loop().time()
                self._progressed = True
                self._receive(response, connection)

    async def _read_welcome(
        self, responses: AsyncGenerator[agent_pb2.CollectResponse, None], connection: Connection
    ) -> None:
        try:
            async with asyncio.timeout(self._limits.hello_s):
                first = await anext(responses)
        except TimeoutError:
            raise self._unavailable("did not answer hello") from None
        except StopAsyncIteration:
            raise _violation("welcome", "the end of the stream") from None
        if not first.HasField("welcome"):
            raise _violation("welcome", _kind(first))
        welcome = first.welcome
        check_contract(welcome.contract_version, self._address)
        self.capacity = welcome.capacity or 1
        # Another instance than before knows nothing of what runs at that one, whatever it says: the
        # same attempt at both would share one session.
        moved = self._instance not in ("", welcome.instance_id)
        self._instance = welcome.instance_id
        resumed = welcome.resumed and not moved
        starts, cancels = self._state.connected(resumed=resumed, address=self._address)
        self._heard_at = asyncio.get_running_loop().time()
        self._connection, self._acknowledged, self._owed = connection, 0, 0
        for attempt in starts:
            connection.start(attempt, self.in_flight)
        for key in cancels:
            connection.cancel(key)
        self._acknowledge()

    def _receive(self, response: agent_pb2.CollectResponse, connection: Connection) -> None:
        """Do what a message says. Raises MeshError when it breaks the contract."""
        if response.HasField("events"):
            self._take(response.events, connection)
        elif response.HasField("start_refused"):
            self._state.refused(response.start_refused)
        elif response.HasField("load"):
            self.load = response.load
        else:
            raise _violation("events, start_refused or load", _kind(response))

    def _take(self, batch: agent_pb2.CollectEvents, connection: Connection) -> None:
        state = self._state
        stale = state.stale
        self._owed += state.take(batch)
        if state.stale > stale:
            metrics.STALE_EVENTS.inc(state.stale - stale)
        if 2 * self._owed >= self._limits.credit:
            connection.grant(self._owed)
            self._owed = 0
        while state.unwanted:
            connection.cancel(state.unwanted.pop())
        self._acknowledge()

    async def _watch(self, reader: asyncio.Task[None]) -> None:
        """Give a connection up on which nothing comes although something must."""
        loop = asyncio.get_running_loop()
        silence_s = self._limits.silence_s
        while True:
            await asyncio.sleep(silence_s / 4)
            if not self._state.in_flight:
                self._heard_at = loop.time()
            elif self._connection is not None and loop.time() - self._heard_at > silence_s:
                reader.cancel()
                return

    def _acknowledge(self) -> None:
        """Say what is stored, where that is news."""
        if self._connection is not None and self._state.acknowledged > self._acknowledged:
            self._acknowledged = self._state.acknowledged
            self._connection.acknowledge(self._acknowledged)

    def _given_up(self, error: MeshError) -> MeshError:
        """The error after `reconnect_s`: how long the agent was tried, and what to check."""
        if error.reason != errors_pb2.ERROR_REASON_PEER_UNAVAILABLE:
            return error
        return MeshError(
            error.reason,
            f"the agent at {self._address} was unreachable for more than "
            f"{self._limits.reconnect_s:g} s. Check that the agent is running, and that this "
            f"machine can connect to the agent's address. Last error: {error.message}",
            metadata=error.metadata,
            retry_after_s=error.retry_after_s,
            code=error.code,
        )

    def _unavailable(self, what: str) -> MeshError:
        return unavailable(f"the agent at {self._address} {what}", self._address)


def _kind(response: agent_pb2.CollectResponse) -> str:
    """What a message is, for an error."""
    return response.WhichOneof("message") or "unknown message"


def _violation(expected: str, got: str) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_CONTRACT_VIOLATED,
        f"the agent violated the contract of Collect: expected {expected}, got {got}",
        metadata={"rule": "collect", "expected": expected, "got": got},
    )


def check_contract(theirs: str, address: str) -> None:
    """Raise CONTRACT_MISMATCH for an agent that speaks another major version of the contract."""
    if not speaks_ours(theirs):
        raise MeshError(
            errors_pb2.ERROR_REASON_CONTRACT_MISMATCH,
            f"the agent at {address} uses contract version {theirs!r}, but this client uses "
            f"{CONTRACT_VERSION}. Use a client with the same major version",
            metadata={"ours": CONTRACT_VERSION, "theirs": theirs},
        )
