"""Sends finished groups to the consumers that share them. `shares` decides who gets which group."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from gymmesh_client.groups import metrics
from gymmesh_client.groups.share_records import SharesState
from gymmesh_client.groups.shares import Consumer, ConsumerClaim, GroupShares, group_tokens
from gymmesh_client.groups.store import Group
from gymmesh_client.groups.stream import GroupStream


@dataclass(frozen=True, slots=True)
class SharedGroup:
    """What a consumer is sent.

    Attributes:
        cursor: acknowledges the group and all that the consumer was sent before; 0 without one.
        group: None: every group was given to some consumer, and no more will finish.
        most_unacknowledged: how many groups a consumer holds at most.
    """

    cursor: int
    group: Group | None
    most_unacknowledged: int


@dataclass(eq=False, slots=True)
class _Stream:
    """An open stream of a consumer; `look` is set when there may be something to send."""

    max_staleness: int | None
    look: asyncio.Event = field(default_factory=asyncio.Event)


class SharedStream:
    """The groups of a stream, shared by consumers.

    Args:
        lease_s: how long a consumer may be without a stream before its groups go to the others.
        clock: seconds that only grow.
        state: how an earlier session of the run left the shares. The store has its groups.
    """

    def __init__(
        self,
        stream: GroupStream,
        lease_s: float,
        clock: Callable[[], float] = time.monotonic,
        state: SharesState | None = None,
    ) -> None:
        self.shares = GroupShares(stream.store.most, lease_s)
        if state is not None:
            self.shares.restore(state, stream.store.numbers(), clock())
            if state.consumers:
                stream.readers = "consumers"
        self._held_before = self.shares.held
        self._stream = stream
        stream.on_wake = self._share_out
        self._clock = clock
        self._offered = 0
        self._counted = 0
        self._streams: dict[Consumer, _Stream] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._joined = asyncio.Event()

    async def groups(
        self, claim: ConsumerClaim, max_staleness: int | None
    ) -> AsyncGenerator[SharedGroup, None]:
        """The groups of one consumer; ends when no more will finish and all are acknowledged.

        Raises:
            MeshError: RUN_STATE, one reader has all groups. CONSUMER_REPLACED, the consumer is
                dead, or another process took its name. FIELD_INVALID, REQUIRED_FIELD_MISSING.
        """
        store, shares = self._stream.store, self.shares
        self._stream.refuse_others("consumers")
        consumer = shares.join(claim, self._clock())
        self._stream.readers = "consumers"
        self._joined.set()
        self._look_all()  # the stream that this one replaces ends
        number = consumer.stream
        mine = self._streams[consumer] = _Stream(max_staleness)
        try:
            sent = 0
            if claim.continues and claim.after_cursor:
                self.acknowledge(claim.name, claim.incarnation, claim.after_cursor)
                sent = claim.after_cursor
            self._share_out()
            said_all = False
            while True:
                shares.check_stream(consumer, number)
                mine.look.clear()
                delivery = consumer.first_after(sent)
                if delivery is not None:
                    sent, said_all = delivery.cursor, False
                    group = store.get(delivery.number)
                    await self._stream.saved()  # who has it, also for a collector that resumes
                    shares.check_stream(consumer, number)  # while this waited for the disk
                    yield SharedGroup(sent, group, shares.window)
                elif store.closed and not store.unacknowledged:
                    return
                elif store.closed and shares.all_given and not said_all:
                    said_all = True
                    yield SharedGroup(0, None, shares.window)
                else:
                    await mine.look.wait()
        finally:
            shares.leave(consumer, number, self._clock())
            if self._streams.get(consumer) is mine:
                del self._streams[consumer]
            self._share_out()

    async def returned(self) -> None:
        """Return once the consumers of an earlier session are back, or their time is over: one that
        comes later finds nobody who tells it that the run is over.
        """
        while (left_s := self.shares.return_s(self._clock())) > 0:
            self._joined.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._joined.wait()

    def acknowledge(self, name: str, incarnation: str, cursor: int) -> None:
        """A consumer has all groups that it was sent up to a cursor. The stream's `saved` returns
        when that is on disk.

        Raises:
            MeshError: CONSUMER_REPLACED, its groups are another one's. FIELD_INVALID, it was not
                sent the cursor.
        """
        numbers = self.shares.acknowledge(name, incarnation, cursor, self._clock())
        self._note()
        self._stream.release(numbers)

    def _note(self) -> None:
        records, self.shares.records = self.shares.records, []
        self._stream.note(records)

    def _share_out(self) -> None:
        """Give the groups that can be given now, and wake the streams with something to send."""
        store, shares, now = self._stream.store, self.shares, self._clock()
        if not shares.consumers:
            return
        while (group := store.after(self._offered)) is not None:
            self._offered = group.cursor
            if group.cursor not in self._held_before:
                shares.offer(group.cursor, group.task.task_id, group_tokens(group.rollouts))
        shares.expire(now)
        while (choice := shares.choose(now)) is not None:
            stream = self._streams[choice.consumer]
            if self._stream.too_old(store.get(choice.number), stream.max_staleness):
                shares.discard(choice.number)
            else:
                shares.give(choice)
                stream.look.set()
        self._note()
        if shares.redelivered > self._counted:
            metrics.GROUPS.labels("redelivered").inc(shares.redelivered - self._counted)
            self._counted = shares.redelivered
        if store.closed and (shares.all_given or not store.unacknowledged):
            self._look_all()
        self._look_again(now)

    def _look_all(self) -> None:
        for stream in self._streams.values():
            stream.look.set()

    def _look_again(self, now: float) -> None:
        """Share out groups again when a lease passes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.shares.due(now)
        if due is not None and self._streams:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(due - now, self._share_out)
