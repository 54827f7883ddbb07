"""Hands finished groups out to consumers that share them. Who gets which, `shares` decides."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from gymmesh_client.groups import metrics
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


class SharedStream:
    """The groups of a stream, shared by consumers.

    Args:
        lease_s: how long a consumer may be without a stream before its groups go to the others.
        clock: seconds that only grow.
    """

    def __init__(
        self, stream: GroupStream, lease_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.shares = GroupShares(stream.store.most, lease_s)
        self._stream = stream
        self._clock = clock
        self._offered = 0
        self._counted = 0
        self._staleness: dict[Consumer, int | None] = {}

    async def groups(
        self, claim: ConsumerClaim, max_staleness: int | None
    ) -> AsyncGenerator[SharedGroup, None]:
        """The groups of one consumer; ends when no more will finish and all are acknowledged.

        Raises:
            MeshError: RUN_STATE, one reader has all groups. CONSUMER_REPLACED, the consumer is
                dead, or another process took its name. FIELD_INVALID, REQUIRED_FIELD_MISSING.
        """
        stream, shares = self._stream, self.shares
        stream.refuse_others("consumers")
        consumer = shares.join(claim, self._clock())
        stream.readers = "consumers"
        number = consumer.stream
        self._staleness[consumer] = max_staleness
        try:
            sent = 0
            if claim.continues and claim.after_cursor:
                self.acknowledge(claim.name, claim.incarnation, claim.after_cursor)
                sent = claim.after_cursor
            said_all = False
            stream.wake()  # the stream that this one replaces
            while True:
                self._give()
                shares.check_stream(consumer, number)
                delivery = consumer.first_after(sent)
                if delivery is not None:
                    sent, said_all = delivery.cursor, False
                    group = stream.store.get(delivery.number)
                    yield SharedGroup(sent, group, shares.window)
                elif stream.store.closed and not stream.store.unacknowledged:
                    return
                elif stream.store.closed and shares.all_given and not said_all:
                    said_all = True
                    yield SharedGroup(0, None, shares.window)
                else:
                    now = self._clock()
                    due = shares.due(now)
                    await stream.changed(None if due is None else due - now)
        finally:
            shares.leave(consumer, number, self._clock())
            if not consumer.connected:
                self._staleness.pop(consumer, None)
            stream.wake()

    def acknowledge(self, name: str, incarnation: str, cursor: int) -> None:
        """A consumer has all groups that it was sent up to a cursor.

        Raises:
            MeshError: CONSUMER_REPLACED, its groups are another one's. FIELD_INVALID, it was not
                sent the cursor.
        """
        self._stream.release(self.shares.acknowledge(name, incarnation, cursor, self._clock()))

    def _give(self) -> None:
        """Give out what can be given now."""
        store, shares, now = self._stream.store, self.shares, self._clock()
        while (group := store.after(self._offered)) is not None:
            self._offered = group.cursor
            shares.offer(group.cursor, group_tokens(group.rollouts))
        shares.expire(now)
        changed = False
        while (choice := shares.choose(now)) is not None:
            group = store.get(choice.number)
            if self._stream.too_old(group, self._staleness.get(choice.consumer)):
                shares.discard(choice.number)
            else:
                shares.give(choice)
            changed = True
        if shares.redelivered > self._counted:
            metrics.GROUPS.labels("redelivered").inc(shares.redelivered - self._counted)
            self._counted = shares.redelivered
        if changed:
            self._stream.wake()
