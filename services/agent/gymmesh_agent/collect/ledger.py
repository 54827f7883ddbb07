"""What one collector has been sent, may be sent and has stored. Pure.

An event's cursor is its place among all events of the stream, from 1; a batch carries the cursor
of its last event. So a stream that is resumed goes on in the middle of a batch if it must, and the
same event has the same cursor however often it is sent.

    push -> ready -> (credit) release -> kept -> acknowledge -> forgotten
                       ^------------- resume ---'
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError

Key = tuple[str, int]
"""An attempt: the rollout's id and the attempt's number."""


# What an event takes beside its bytes, in bytes: objects and places in queues.
_OVERHEAD: Final = 160


class Entry(NamedTuple):
    """An event on its way: its cursor, its bytes, and the attempt that it ends, if any."""

    cursor: int
    data: bytes
    ends: Key | None


class Ledger:
    """The events of one stream, from the moment they happen until they are acknowledged.

    Nothing is ever dropped: whoever makes events asks `full` and waits.

    Args:
        max_bytes: bytes of events, sent or not, from which the ledger is full.
        cursor: the first event has the cursor after this one.
    """

    def __init__(self, max_bytes: int, *, cursor: int = 0) -> None:
        self._max_bytes = max_bytes
        self._ready: deque[Entry] = deque()
        self._kept: deque[Entry] = deque()
        self._first = cursor
        self._cursor = cursor  # of the last event
        self._sent = cursor  # the highest that was ever released
        self._forgotten = cursor
        #: Events that may be sent.
        self.credit = 0
        #: Bytes of all events that are held, with what holding them takes.
        self.size = 0

    def __len__(self) -> int:
        """How many events are held."""
        return len(self._ready) + len(self._kept)

    @property
    def full(self) -> bool:
        """Whether whoever makes events should wait."""
        return self.size >= self._max_bytes

    @property
    def unsent(self) -> int:
        """How many events wait for credit, or for a connection."""
        return len(self._ready)

    def push(self, data: bytes, ends: Key | None = None) -> None:
        """Take an event, also when full: what ends an attempt must not wait."""
        self._cursor += 1
        self.size += len(data) + _OVERHEAD
        self._ready.append(Entry(self._cursor, data, ends))

    def pass_on(self, data: bytes, ends: Key | None = None) -> Entry | None:
        """Take an event and release it at once, where it may be; else it waits, as after `push`."""
        if self._ready or not self.credit:
            self.push(data, ends)
            return None
        # What `push` and `release` do for one, in one step: nearly all events come through here.
        self._cursor = self._sent = cursor = self._cursor + 1
        self.size += len(data) + _OVERHEAD
        self.credit -= 1
        entry = Entry(cursor, data, ends)
        self._kept.append(entry)
        return entry

    def release(self) -> list[Entry]:
        """The events that may be sent now, in order; each costs one unit of credit."""
        count = min(self.credit, len(self._ready))
        if not count:
            return []
        self.credit -= count
        released = [self._ready.popleft() for _ in range(count)]
        self._kept.extend(released)
        self._sent = max(self._sent, released[-1].cursor)
        return released

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
        self._forgotten = max(self._forgotten, cursor)
        ended = []
        # On a resumed stream, an event may be acknowledged before it is sent again.
        for events in (self._kept, self._ready):
            while events and events[0][0] <= cursor:
                _, data, ends = events.popleft()
                self.size -= len(data) + _OVERHEAD
                if ends is not None:
                    ended.append(ends)
        return ended

    def resume(self, last_cursor: int, credit: int) -> bool:
        """Go on right after a cursor, on a new connection; False when that cannot be.

        Zero stands for the beginning.
        """
        last_cursor = last_cursor or self._first
        if not self._forgotten <= last_cursor <= self._sent:
            return False
        again = []
        while self._kept and self._kept[-1].cursor > last_cursor:
            again.append(self._kept.pop())
        self._ready.extendleft(again)
        # What an earlier resume made ready, and the collector has by now, is not sent again.
        while self._ready and self._ready[0].cursor <= last_cursor:
            self._kept.append(self._ready.popleft())
        self.credit = credit
        return True
