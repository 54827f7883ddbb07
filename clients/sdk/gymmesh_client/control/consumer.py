"""One of several consumers that share a run's groups, such as a rank of a trainer."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from gymmesh.errors.v1 import errors_pb2
from gymmesh.run.v1 import run_pb2
from gymmesh_runtime.errors import MeshError, deadline_passed, field_invalid
from gymmesh_runtime.timers import cancel_and_wait

T = TypeVar("T")
ServedRun: TypeAlias = tuple[Any, Mapping[str, str]]
"""RunService at an address, and the metadata that its calls carry."""

_LOG: Final = logging.getLogger("gymmesh.collect")
_METHOD: Final = "gymmesh.run.v1.RunService/StreamGroups"
_CALL_S: Final = 20.0
_STREAM_S: Final = 86_400.0  # then another stream continues it
_CONNECTING_S: Final = 10.0  # longer than any attempt to connect
_PAUSES_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
# With these, the connection broke or the collector was busy: it may still know this consumer.
_BROKEN: Final = frozenset(
    (
        errors_pb2.ERROR_REASON_PEER_UNAVAILABLE,
        errors_pb2.ERROR_REASON_DRAINING,
        errors_pb2.ERROR_REASON_QUEUE_FULL,
        errors_pb2.ERROR_REASON_DEADLINE_PASSED,
        errors_pb2.ERROR_REASON_CALLER_CANCELLED,
    )
)


class GroupConsumer:
    """Reads its share of a run's groups, over connections that may break. For one task at a time.

    Args:
        peer: RunService.
        metadata: what each call carries.
        name: this consumer's name; consumers of one run have different ones.
        consumers: how many share the groups; the same in all of them.
        max_staleness: as in StreamGroupsRequest.
        reconnect_s: how long the collector may be unreachable.
        now_at: returns where the collector may be when it is unreachable; None: as before.

    Attributes:
        all_sent: no further group comes unless another consumer dies.
        finished: none comes at all.
        most_unacknowledged: how many groups the collector sends at most before one is
            acknowledged; 0: not known yet.
    """

    def __init__(
        self,
        peer: Any,
        metadata: Mapping[str, str],
        *,
        run_id: str,
        name: str,
        consumers: int,
        max_staleness: int | None = None,
        reconnect_s: float = 60.0,
        now_at: Callable[[], ServedRun | None] = lambda: None,
    ) -> None:
        self.all_sent = False
        self.finished = False
        self.most_unacknowledged = 0
        self._peer = peer
        self._metadata = metadata
        self._reconnect_s = reconnect_s
        self._now_at = now_at
        self._request = run_pb2.StreamGroupsRequest(
            run_id=run_id,
            consumer=name,
            consumers=consumers,
            incarnation=secrets.token_hex(16),
            max_staleness=max_staleness,
        )
        self._stream: AsyncGenerator[run_pb2.StreamGroupsResponse, None] | None = None
        self._reading: asyncio.Task[run_pb2.StreamGroupsResponse | None] | None = None
        self._received = 0
        self._held: list[int] = []

    @property
    def held(self) -> int:
        """How many groups `next` returned that are not acknowledged."""
        return len(self._held)

    async def next(self, wait_s: float) -> run_pb2.StreamGroupsResponse | None:
        """The next group, which the caller then holds until it acknowledges it.

        None: the run has no more groups. While groups are held that may still change, when
        another consumer dies: then `finished` is false, and after `acknowledge` a further call
        waits for such groups.

        Raises:
            MeshError: CONSUMER_REPLACED, drop the groups that are held and start with a new
                consumer. PEER_UNAVAILABLE, the collector was unreachable for `reconnect_s`.
                DEADLINE_PASSED, no group came for `wait_s` seconds. FIELD_INVALID, as many groups
                are held as the collector allows. What else StreamGroups raises.
        """
        if self.finished or (self.all_sent and self._held):
            return None
        if 0 < self.most_unacknowledged <= len(self._held):
            raise field_invalid(
                "consumer",
                f"must acknowledge groups first: the consumer holds {len(self._held)} groups, the "
                f"most that the collector allows for one of {self._request.consumers} consumers. "
                "Acknowledge more often, or collect with a larger --stream-groups",
            )
        until = time.monotonic() + wait_s
        while not self.finished:
            reply = await self._next_reply(until)
            if reply is None:
                self.finished = True
            elif reply.all_sent:
                self.all_sent = True
                if self._held:
                    return None
            elif reply.cursor > self._received:  # others were sent again on a new stream
                self.all_sent = False
                self._received = reply.cursor
                self._held.append(reply.cursor)
                return reply
        return None

    async def acknowledge(self, count: int | None = None) -> None:
        """Acknowledge all groups that `next` returned, or the first `count` of those held.
        Idempotent.

        Raises MeshError: CONSUMER_REPLACED, they are another consumer's now; PEER_UNAVAILABLE as
        above, but for a run that is over, whose collector may have ended.
        """
        done = self._held[:count]
        if not done:
            return
        request = run_pb2.AcknowledgeGroupsRequest(
            run_id=self._request.run_id,
            consumer=self._request.consumer,
            incarnation=self._request.incarnation,
            cursor=done[-1],
        )

        async def call() -> None:
            await self._peer.AcknowledgeGroups(request, timeout=_CALL_S, metadata=self._metadata)

        try:
            await self._kept_up(call)
        except MeshError as error:
            if not (self.all_sent and error.reason in _BROKEN):
                raise
            _LOG.warning(
                "%s: the collector ended before %d groups were acknowledged, and treats these "
                "groups as not received: %s",
                self._request.consumer,
                len(done),
                error,
            )
        self._request.after_cursor = request.cursor
        del self._held[: len(done)]

    async def close(self) -> None:
        """Close the stream. Groups that are held go to the other consumers after the lease."""
        self.finished = True
        await cancel_and_wait(self._reading)
        self._reading = None
        await self._hang_up()

    async def _next_reply(self, until: float) -> run_pb2.StreamGroupsResponse | None:
        """What the stream says next; None: its end. A wait that is cut short loses nothing."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._kept_up(self._read))
        left = until - time.monotonic()
        done, _ = await asyncio.wait([self._reading], timeout=max(0.0, left))
        if not done:
            raise deadline_passed(_METHOD)
        reading, self._reading = self._reading, None
        try:
            return reading.result()
        except MeshError as error:
            if self.all_sent and not self._held and error.reason in _BROKEN:
                return None  # the run is over, and its collector has left
            raise

    async def _read(self) -> run_pb2.StreamGroupsResponse | None:
        if self._stream is None:
            self._stream = self._peer.StreamGroups(
                self._request, timeout=_STREAM_S, metadata=self._metadata
            )
        try:
            reply = await anext(self._stream, None)
        except MeshError:
            await self._hang_up()
            raise
        if reply is not None:
            self._request.continues = True
            self.most_unacknowledged = reply.most_unacknowledged
        return reply

    async def _hang_up(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.aclose()

    def _may_come_back(self, error: MeshError) -> bool:
        """Whether a later call may succeed. A collector that is resumed serves before it has its
        run.
        """
        resumed = self._request.continues and error.reason == errors_pb2.ERROR_REASON_RUN_NOT_FOUND
        return error.reason in _BROKEN or resumed

    def _given_up(self, error: MeshError) -> MeshError:
        """The error after `reconnect_s`: where the collector was, how long it was tried, and what
        to check.
        """
        if error.reason != errors_pb2.ERROR_REASON_PEER_UNAVAILABLE:
            return error
        address = error.metadata.get("address", "")
        return MeshError(
            error.reason,
            f"the collector{f' at {address}' if address else ''} was unreachable for more than "
            f"{self._reconnect_s:g} s (reconnect_s). Check that `gym-cli collect` of the run "
            f"'{self._request.run_id}' is running, and that this machine can connect to the "
            f"collector's address. Last error: {error.message}",
            metadata=error.metadata,
            code=error.code,
        )

    async def _kept_up(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call again where the connection breaks, until the collector was away for too long."""
        lost_at: float | None = None
        times = 0
        while True:
            began = time.monotonic()
            try:
                return await call()
            except MeshError as error:
                if not self._may_come_back(error):
                    raise
                now = time.monotonic()
                if lost_at is None:
                    lost_at = now
                if now - began > _CONNECTING_S:  # it had a connection meanwhile
                    lost_at, times = now, 0
                if now - lost_at >= self._reconnect_s:
                    raise self._given_up(error) from None
                self._peer, self._metadata = self._now_at() or (self._peer, self._metadata)
            await asyncio.sleep(_PAUSES_S[min(times, len(_PAUSES_S) - 1)])
            times += 1
