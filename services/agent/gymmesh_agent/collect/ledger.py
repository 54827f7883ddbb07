"""What one collector has been sent, may be sent and has stored. Pure.

An event's cursor is its place among all events of the stream, from 1; a batch carries the cursor
of its last event. So a stream that is resumed goes on in the middle of a batch if it must, and the
same event has the same cursor however often it is sent.

    push -> held -> (credit) take -> held -> acknowledge -> forgotten
              ^-------- resume -------'

The events that are held are one list, and how far they were sent is a cursor into it: sending one,
or sending it again, moves nothing.
"""

from __future__ import annotations

from collections import deque
from itertools import accumulate
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError

Key = tuple[str, int]
"""An attempt: the rollout's id and the attempt's number."""

#: What an event takes beside its bytes, in bytes: objects and places in queues.
OVERHEAD: Final = 160


class Ledger:
    """The events of one stream, from the moment they happen until they are acknowledged.

    Nothing is ever dropped: whoever makes events waits when it is full.

    Args:
        max_bytes: bytes of events, sent or not, from which the ledger is full.
        cursor: the first event has the cursor after this one.
    """

    def __init__(self, max_bytes: int, *, cursor: int = 0) -> None:
        #: With so many bytes it is full.
        self.max_bytes = max_bytes
        #: Those that are held, in order.
        self.events: list[bytes] = []
        self._ends: deque[tuple[int, Key]] = deque()  # by the cursor of the terminal event
        self._first = cursor
        self._forgotten = cursor  # of the last event before those that are held
        self._sent = cursor  # the highest that was ever sent
        #: The cursor of the last event that was sent on this connection.
        self.at = cursor
        #: Events that may be sent.
        self.credit = 0
        #: Bytes of all events that are held, with what holding them takes.
        self.size = 0

    def __len__(self) -> int:
        """How many events are held."""
        return len(self.events)

    @property
    def full(self) -> bool:
        """Whether whoever makes events should wait."""
        return self.size >= self.max_bytes

    @property
    def last(self) -> int:
        """The cursor of the last event."""
        return self._forgotten + len(self.events)

    @property
    def unsent(self) -> int:
        """How many events were not sent on this connection."""
        return self.last - self.at

    def push(self, data: bytes, ends: Key | None = None) -> bool:
        """Take an event, and the attempt that it ends; returns whether the ledger is full now.

        It is taken when it was full already, too: what ends an attempt must not wait.
        """
        events = self.events
        events.append(data)
        self.size = size = self.size + len(data) + OVERHEAD
        if ends is not None:
            self._ends.append((self._forgotten + len(events), ends))
        return size >= self.max_bytes

    def take(self, until: int, *, max_events: int, max_bytes: int) -> list[bytes]:
        """The next events to be sent, as far as credit goes, none after the cursor `until`.

        Each costs one unit of credit; `at` is the cursor of the last one then. One that is larger
        than `max_bytes` comes alone. Empty when none may be sent.
        """
        count = min(until - self.at, self.credit, max_events)
        if count <= 0:
            return []
        begin = self.at - self._forgotten
        batch = self.events[begin : begin + count]
        if self.size > max_bytes and _bytes_of(batch) > max_bytes:
            fitting = sum(size <= max_bytes for size in accumulate(map(len, batch)))
            del batch[max(1, fitting) :]
        self.credit -= len(batch)
        self.at += len(batch)
        self._sent = max(self._sent, self.at)
        return batch

    def acknowledge(self, cursor: int) -> list[Key]:
        """Forget the events up to a cursor, and say which attempts ended with them.

        Raises:
            MeshError: FIELD_INVALID; no such event was sent yet.
        """
        if cursor > self._sent:
            raise MeshError(
                errors_pb2.ERROR_REASON_FIELD_INVALID,
                f"ack.cursor {cursor} is beyond the last event sent, {self._sent}",
                metadata={"field": "ack.cursor"},
            )
        count = max(0, cursor - self._forgotten)
        stored = self.events[:count]
        del self.events[:count]
        self.size -= _bytes_of(stored) + count * OVERHEAD
        self._forgotten += count
        # On a resumed stream, an event may be acknowledged before it is sent again.
        self.at = max(self.at, self._forgotten)
        ended = []
        while self._ends and self._ends[0][0] <= cursor:
            ended.append(self._ends.popleft()[1])
        return ended

    def resume(self, last_cursor: int, credit: int) -> bool:
        """Go on right after a cursor, on a new connection; False when that cannot be.

        Zero stands for the beginning.
        """
        last_cursor = last_cursor or self._first
        if not self._forgotten <= last_cursor <= self._sent:
            return False
        self.at = last_cursor
        self.credit = credit
        return True


def _bytes_of(events: list[bytes]) -> int:
    return len(b"".join(events))  # which costs a third of adding up their lengths
