"""The stream to one agent instance, over any number of connections."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from random import Random
from typing import Final, Protocol

from google.protobuf.message import DecodeError

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_client.collect_stream.book import (
    TRIED_S,
    Asked,
    Book,
    EventSink,
    Key,
    StreamLimits,
    again,
    key_of,
)
from gymmesh_client.collect_stream.link import Link
from gymmesh_runtime import metrics
from gymmesh_runtime.contract import CONTRACT_VERSION
from gymmesh_runtime.errors import MeshError, unforeseen
from gymmesh_runtime.wire.options import MAX_MESSAGE_BYTES
from gymmesh_runtime.wire.sizes import too_large
from gymmesh_runtime.wire.twins import EventBatch, PackedResponse

_METHOD: Final = "gymmesh.agent.v1.AgentService/Collect"
_BYTES: Final = agent_pb2.RunRolloutRequest.SerializeToString
# In a message of its own, beside what the message adds to it.
_MAX_START: Final = MAX_MESSAGE_BYTES - 1024
# A connection lives as long as it is needed; after a week it is made anew.
_LONGEST_S: Final = 7 * 86_400.0
_CLOSE_S: Final = 2.0
#: The places of an agent that has not said how many it has.
ASSUMED_CAPACITY: Final = 1024
# With few attempts in flight, a start should not wait for others; with more, so long for each of
# them, in seconds: what a batch saves then costs no throughput, as it takes longer to run as many.
_FEW: Final = 8
_DELAY_PER_ATTEMPT_S: Final = 160e-6
_CHANCE: Final = Random()

# After one of these, connecting again to this instance does not help.
_FINAL: Final = frozenset(
    (
        errors_pb2.ERROR_REASON_NOT_OFFERED,
        errors_pb2.ERROR_REASON_CONTRACT_MISMATCH,
        errors_pb2.ERROR_REASON_CONTRACT_VIOLATED,
        errors_pb2.ERROR_REASON_DRAINING,
        errors_pb2.ERROR_REASON_CREDENTIAL_INVALID,
        errors_pb2.ERROR_REASON_NOT_PERMITTED,
        errors_pb2.ERROR_REASON_REQUIRED_FIELD_MISSING,
        errors_pb2.ERROR_REASON_FIELD_INVALID,
        errors_pb2.ERROR_REASON_CALLER_CANCELLED,
    )
)


_ENDED: Final = MeshError(errors_pb2.ERROR_REASON_CALLER_CANCELLED, "the collector has ended")


class CollectPeer(Protocol):
    """What a stream needs of an agent service."""

    def packed_Collect(
        self, requests: AsyncIterator[agent_pb2.CollectRequest | bytes], *, timeout: float
    ) -> AsyncGenerator[bytes, None]:
        """One connection; MeshError when it breaks. Responses come in their bytes, and a request
        may go in its own."""
        ...


class CollectStream:
    """Runs attempts at one agent instance, over one stream that outlives its connections.

    A connection that breaks is made anew, and the stream goes on after the last event that came:
    no attempt notices. When that cannot be, all attempts in flight end in a MeshError of code
    UNAVAILABLE, and the stream is `broken`: it takes no more, and another one is to be made.

    Args:
        peer: the agent.
        address: where it is, for messages.
    """

    def __init__(self, peer: CollectPeer, address: str, limits: StreamLimits | None = None) -> None:
        #: Why nothing more can be run on it; None while something can.
        self.broken: MeshError | None = None
        #: The most attempts that the agent runs side by side for this stream; 0: not known yet.
        self.capacity = 0
        #: How busy the agent said it is, for this stream; None: it has not said.
        self.load: agent_pb2.CollectLoad | None = None
        self._places = ASSUMED_CAPACITY
        self._peer = peer
        self._address = address
        self._limits = limits or StreamLimits()
        self._id = secrets.token_urlsafe(24)
        self._book = Book()
        self._link: Link | None = None
        self._task: asyncio.Task[None] | None = None
        self._connection: asyncio.Task[None] | None = None
        self._ack_timer: asyncio.TimerHandle | None = None
        self._acked = 0
        self._owed = 0
        self._heard_at = 0.0
        self._progressed = False
        self._closing = False

    @property
    def in_flight(self) -> int:
        """How many attempts are in flight."""
        return len(self._book.in_flight)

    def busyness(self) -> float:
        """How busy the agent is with this collector's attempts; 1: it has no place left."""
        return len(self._book.in_flight) / self._places

    @property
    def connected(self) -> bool:
        """Whether there is a connection at present."""
        return self._link is not None

    async def run(
        self,
        request: agent_pb2.RunRolloutRequest,
        *,
        timeout_s: float,
        on_event: EventSink,
        held: bool = False,
    ) -> None:
        """Run one attempt; `on_event` gets its events in order, each once, to the terminal one.

        With `held`, whoever calls says by `stored` when the outcome is on disk; until then the
        agent keeps its events. Cancelling the call cancels the attempt.

        Raises:
            MeshError: the agent refused it, or is lost; ROLLOUT_EXISTS when it is in flight;
                MESSAGE_TOO_LARGE when its task is, which ends no other attempt.
            Exception: what `on_event` raised; the attempt is cancelled then.
        """
        if self.broken is not None:
            raise again(self.broken)
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def done(error: BaseException | None) -> None:
            if ended.done():
                return
            if error is None:
                ended.set_result(None)
            else:
                ended.set_exception(error)

        book = self._book
        key, packed = key_of(request), _BYTES(request)
        if len(packed) > _MAX_START:  # alone: others share the stream's messages
            raise too_large(f"attempt {key[1]} of rollout {key[0]}", _MAX_START, size=len(packed))
        asked = Asked(key, packed, loop.time() + timeout_s, on_event, done, held)
        book.enter(asked)
        if self._link is not None:
            crowd = len(book.in_flight)
            self._link.start(asked, crowd * _DELAY_PER_ATTEMPT_S if crowd > _FEW else 0.0)
        elif self._task is None:
            self._task = asyncio.create_task(self._live())
        try:
            await ended
        except asyncio.CancelledError:
            if book.abandon(key) and self._link is not None:
                self._link.cancel(key)
            raise

    def stored(self, key: Key) -> bool:
        """The outcome of an attempt (rollout id, attempt) is on disk; whether it ran here."""
        if not self._book.stored(key):
            return False
        if self._ack_timer is None:
            self._acknowledge_soon()
        return True

    async def close(self) -> None:
        """End the stream; attempts in flight are cancelled at the agent."""
        self._closing = True
        self.broken = self.broken or again(_ENDED)
        keys = [asked.key for asked in self._book.in_flight.values() if asked.sent]
        self._book.fail(_ENDED)
        if self._link is not None:
            for key in keys:
                self._link.cancel(key)
            self._acknowledge()
            self._link.end()
        task, self._task = self._task, None
        if task is not None:
            if self._link is not None:
                await asyncio.wait({task}, timeout=_CLOSE_S)
            task.cancel()
            await asyncio.wait({task})
        if self._ack_timer is not None:
            self._ack_timer.cancel()

    async def _live(self) -> None:
        """Serve; whatever happens, nobody is left waiting."""
        error = again(_ENDED)
        try:
            error = await self._serve()
        except Exception as fault:
            error = unforeseen(fault, _METHOD)
        finally:
            self.broken = self.broken or error
            self._book.fail(error)

    async def _serve(self) -> MeshError:
        """Connect, and connect again, for as long as that makes sense; returns why it ended."""
        loop, limits = asyncio.get_running_loop(), self._limits
        failing_since = loop.time()
        wait_s = limits.backoff_s
        while True:
            self._progressed = False
            began = loop.time()
            error = await self._connect()
            now = loop.time()
            if self._progressed or now - began >= limits.reconnect_s:
                failing_since, wait_s = now, limits.backoff_s
            worth_it = self.capacity > 0 and self._book.in_flight and not self._closing
            given_up = now - failing_since >= limits.reconnect_s
            if error.reason in _FINAL or given_up or not worth_it:
                if given_up:
                    error.metadata[TRIED_S] = str(int(now - failing_since))
                return error
            metrics.COLLECT_RECONNECTS.inc()
            # Half of the wait is drawn, so that many collectors do not come back as one.
            await asyncio.sleep(wait_s * (0.5 + _CHANCE.random() / 2))
            wait_s = min(2 * wait_s, limits.backoff_cap_s)

    async def _connect(self) -> MeshError:
        """One connection, from hello to its end; returns why it ended."""
        connection = self._connection = asyncio.create_task(self._converse())
        watch = asyncio.create_task(self._watch(connection))
        try:
            await asyncio.wait({connection})
        finally:
            self._link = None
            watch.cancel()
            connection.cancel()
            await asyncio.wait({connection, watch}, timeout=_CLOSE_S)
        if connection.cancelled():
            return self._unavailable(f"sent nothing for {self._limits.silence_s:g} s")
        fault = connection.exception()
        if fault is None:
            return self._unavailable("ended the stream")
        return fault if isinstance(fault, MeshError) else unforeseen(fault, _METHOD)

    async def _converse(self) -> None:
        loop = asyncio.get_running_loop()
        link = Link(self._limits.flush_s, loop.time)
        hello = self._book.hello(self._id, self._limits.credit, CONTRACT_VERSION)
        self._owed = 0
        responses = self._peer.packed_Collect(link.requests(hello), timeout=_LONGEST_S)
        try:
            async with aclosing(responses):
                await self._welcome(responses, link)
                async for response in responses:
                    self._heard_at = loop.time()
                    self._progressed = True
                    self._hear(response, link)
        except DecodeError:
            raise _violation("a CollectResponse", "bytes that are none") from None
        finally:
            link.end()

    async def _welcome(self, responses: AsyncGenerator[bytes, None], link: Link) -> None:
        try:
            async with asyncio.timeout(self._limits.hello_s):
                first = agent_pb2.CollectResponse.FromString(await anext(responses))
        except TimeoutError:
            raise self._unavailable("did not answer hello") from None
        except StopAsyncIteration:
            raise _violation("welcome", "the end of the stream") from None
        if not first.HasField("welcome"):
            raise _violation("welcome", first.WhichOneof("message") or "nothing")
        welcome = first.welcome
        _check_contract(welcome.contract_version, self._address)
        self.capacity = welcome.capacity or 1
        self._count_places()
        starts, cancels = self._book.welcomed(resumed=welcome.resumed, address=self._address)
        self._heard_at = asyncio.get_running_loop().time()
        self._link = link
        for asked in starts:
            link.start(asked)
        for key in cancels:
            link.cancel(key)
        self._acked = 0
        self._acknowledge()

    def _hear(self, data: bytes, link: Link) -> None:
        packed = PackedResponse.FromString(data)
        kind = packed.WhichOneof("message")
        if kind == "events":
            self._take(packed.events, link)
        elif kind == "start_refused":
            self._book.refused(agent_pb2.CollectResponse.FromString(data).start_refused)
        elif kind == "load":
            self.load = agent_pb2.CollectResponse.FromString(data).load
            self._count_places()
        else:
            raise _violation("events, start_refused or load", kind or "an unknown message")

    def _take(self, batch: EventBatch, link: Link) -> None:
        book = self._book
        stale = book.stale
        self._owed += book.take(batch)
        if book.stale > stale:
            metrics.STALE_EVENTS.inc(book.stale - stale)
        if 2 * self._owed >= self._limits.credit:
            link.grant(self._owed)
            self._owed = 0
        while book.unwanted:
            link.cancel(book.unwanted.pop())
        self._acknowledge_soon()

    def _count_places(self) -> None:
        target = self.load.target if self.load is not None else 0
        self._places = target or self.capacity

    async def _watch(self, connection: asyncio.Task[None]) -> None:
        """Give a connection up on which nothing comes although something must."""
        loop = asyncio.get_running_loop()
        silence_s = self._limits.silence_s
        while True:
            await asyncio.sleep(silence_s / 4)
            if not self._book.in_flight:
                self._heard_at = loop.time()
            elif self._link is not None and loop.time() - self._heard_at > silence_s:
                connection.cancel()
                return

    def _acknowledge_soon(self) -> None:
        if self._ack_timer is None and self._book.acknowledged > self._acked:
            loop = asyncio.get_running_loop()
            self._ack_timer = loop.call_later(self._limits.acknowledge_s, self._acknowledge)

    def _acknowledge(self) -> None:
        self._ack_timer = None
        if self._link is not None and self._book.acknowledged > self._acked:
            self._acked = self._book.acknowledged
            self._link.acknowledge(self._acked)

    def _unavailable(self, what: str) -> MeshError:
        return MeshError(
            errors_pb2.ERROR_REASON_PEER_UNAVAILABLE,
            f"the agent at {self._address} {what}",
            metadata={"address": self._address},
        )


def _violation(expected: str, got: str) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_CONTRACT_VIOLATED,
        f"the agent's side of Collect broke the contract: {expected} was due, {got} came",
        metadata={"rule": "collect", "expected": expected, "got": got},
    )


def _check_contract(theirs: str, address: str) -> None:
    if theirs and theirs.partition(".")[0] != CONTRACT_VERSION.partition(".")[0]:
        raise MeshError(
            errors_pb2.ERROR_REASON_CONTRACT_MISMATCH,
            f"the agent at {address} speaks contract version '{theirs}' and this client "
            f"{CONTRACT_VERSION}; use a client of the same major version",
            metadata={"ours": CONTRACT_VERSION, "theirs": theirs},
        )
