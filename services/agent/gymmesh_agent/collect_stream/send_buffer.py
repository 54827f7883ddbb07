"""The events of one stream, from the moment they happen until they are acknowledged. Pure.

An event's cursor is its place among all events of the stream, from 1. A batch has the cursor of its
last event. So a stream can resume in the middle of a batch, and an event keeps its cursor however
often it is sent.

    add -> (credit) take -> acknowledge
             ^-- resume --'
"""

from __future__ import annotations

from collections import deque
from itertools import accumulate
from typing import Final

from gymmesh_runtime.errors import field_invalid

Key = tuple[str, int]
"""The key of an attempt: the rollout's id and the attempt's number."""

#: What an event takes in memory beside its bytes.
OVERHEAD: Final = 160


class SendBuffer:
    """Events to send, and sent events that may have to be sent again.

    The buffer never drops an event: while it is full, senders wait.

    Args:
        max_bytes: the buffer is full when its events, sent or not, have this many bytes.
        cursor: the first event has the cursor after this one.

    Attributes:
        sent: the cursor of the last event that was sent on this connection.
        credit: how many events may be sent.
        size: bytes of all events in the buffer, including overhead.
    """

    def __init__(self, max_bytes: int, *, cursor: int = 0) -> None:
        self.sent = cursor
        self.credit = 0
        self.size = 0
        self._max_bytes = max_bytes
        self._events: list[bytes] = []
        self._ends: deque[tuple[int, Key]] = deque()  # by the cursor of the terminal event
        self._first = cursor
        self._acknowledged = cursor
        self._most_sent = cursor  # on any connection

    def __len__(self) -> int:
        return len(self._events)

    @property
    def full(self) -> bool:
        """Whether senders should wait."""
        return self.size >= self._max_bytes

    @property
    def last(self) -> int:
        """The cursor of the last event."""
        return self._acknowledged + len(self._events)

    @property
    def unsent(self) -> int:
        """How many events were not yet sent on this connection."""
        return self.last - self.sent

    def add(self, event: bytes, ends: Key | None = None) -> None:
        """Add an event, and the attempt that the event ends, if any. The event is added even if
        the buffer is full.
        """
        self._events.append(event)
        self.size += len(event) + OVERHEAD
        if ends is not None:
            self._ends.append((self.last, ends))

    def take(self, until: int, *, max_events: int, max_bytes: int) -> list[bytes]:
        """The next events to send: as many as the credit permits, and none after the cursor
        `until`.

        Each event costs one unit of credit. Afterwards, `sent` is the cursor of the last returned
        event. An event that is larger than `max_bytes` is returned alone. The result is empty if no
        event may be sent.
        """
        count = min(until - self.sent, self.credit, max_events)
        if count <= 0:
            return []
        begin = self.sent - self._acknowledged
        batch = self._events[begin : begin + count]
        if self.size > max_bytes:
            fitting = sum(size <= max_bytes for size in accumulate(map(len, batch)))
            del batch[max(1, fitting) :]
        self.credit -= len(batch)
        self.sent += len(batch)
        self._most_sent = max(self._most_sent, self.sent)
        return batch

    def acknowledge(self, cursor: int) -> list[Key]:
        """Remove the events up to a cursor, and return the attempts that ended with these events.

        Raises:
            MeshError: FIELD_INVALID: no event with this cursor was sent yet.
        """
        if cursor > self._most_sent:
            raise field_invalid(
                "ack.cursor",
                f"is {cursor}, but the cursor of the last sent event is {self._most_sent}",
            )
        count = max(0, cursor - self._acknowledged)
        self.size -= sum(map(len, self._events[:count])) + count * OVERHEAD
        del self._events[:count]
        self._acknowledged += count
        # On a resumed stream, an event may be acknowledged before it is sent again.
        self.sent = max(self.sent, self._acknowledged)
        ended = []
        while self._ends and self._ends[0][0] <= cursor:
            ended.append(self._ends.popleft()[1])
        return ended

    def resume(self, last_cursor: int, credit: int) -> bool:
        """Resume right after a cursor, on a new connection; False if that is impossible.

        Zero means the beginning.
        """
        last_cursor = last_cursor or self._first
        if not self._acknowledged <= last_cursor <= self._most_sent:
            return False
        self.sent = last_cursor
        self.credit = credit
        return True
