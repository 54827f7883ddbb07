"""One connection of a stream: what leaves on it, in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from gymmesh.agent.v1 import agent_pb2
from gymmesh_agent.collect.ledger import Entry
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.wire.batch import BatchLimits, Outbox

# An event is kept as its bytes, and a batch is made by putting them together: each stands after
# the tag of CollectEvents.events (a message: wire type 2) and its length.
_TAG: Final = bytes([agent_pb2.CollectEvents.EVENTS_FIELD_NUMBER << 3 | 2])
_LENGTHS: Final = 4096  # different lengths of events whose varints are kept


class Line(Outbox[Entry | agent_pb2.CollectResponse]):
    """What leaves on one connection.

    Args:
        flush_s: the longest that an event waits for others, in seconds.
    """

    def __init__(self, flush_s: float) -> None:
        super().__init__(BatchLimits(delay_s=flush_s))
        #: Why it ends; None: well.
        self.error: MeshError | None = None
        #: Whether the collector has said all that it had to say.
        self.finishing = False

    def say(self, message: agent_pb2.CollectResponse) -> None:
        """Have a message other than events leave; nothing happens on a closed line."""
        if not self.closed:
            self.put(message, message.ByteSize(), urgent=True)

    def end(self, error: MeshError | None = None) -> None:
        """Take no more; what is on its way leaves, and then the connection ends."""
        if not self.closed:
            self.error = error
            self.close()


def messages(
    batch: Iterable[Entry | agent_pb2.CollectResponse],
) -> Iterator[agent_pb2.CollectResponse]:
    """A batch as messages: events that stand side by side share one."""
    events: list[Entry] = []
    for one in batch:
        if isinstance(one, Entry):
            events.append(one)
            continue
        if events:
            yield events_message(events)
            events = []
        yield one
    if events:
        yield events_message(events)


def events_message(entries: list[Entry]) -> agent_pb2.CollectResponse:
    """The message that carries these events."""
    message = agent_pb2.CollectResponse()
    parts: list[bytes] = []
    for _, data, _ in entries:
        parts += (_TAG, _length(len(data)), data)
    events = message.events
    events.MergeFromString(b"".join(parts))
    events.cursor = entries[-1].cursor
    return message


@lru_cache(_LENGTHS)
def _length(size: int) -> bytes:
    """A length as the varint of the wire format."""
    if size < 0x80:
        return size.to_bytes(1, "little")
    digits = bytearray()
    while size >= 0x80:
        digits.append(size & 0x7F | 0x80)
        size >>= 7
    digits.append(size)
    return bytes(digits)
