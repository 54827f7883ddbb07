"""One connection to an agent: what leaves on it, in batches."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from gymmesh.agent.v1 import agent_pb2
from gymmesh_client.collect_stream.book import Asked, Key, cancels_message, packed_starts
from gymmesh_runtime.wire.batch import KIB
from gymmesh_runtime.wire.pace import PacedBell

_Item = Asked | agent_pb2.CollectRequest | tuple[str, int]
_CANCEL_BYTES: Final = 64  # about; what an id takes
# An agent begins all starts of a message in one go: no more of them than it can in a moment.
_MAX_ITEMS: Final = 256
_MAX_BYTES: Final = 256 * KIB  # of a message, unless one start alone has more


class Link:
    """What leaves on one connection, in the order in which it was said.

    Args:
        flush_s: the longest that a start waits for others, in seconds.
        now: the clock in whose seconds attempts are due.
    """

    def __init__(self, flush_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._bell = PacedBell(flush_s)
        self._items: list[_Item] = []
        self._size = 0  # their bytes
        self._now = now

    def start(self, asked: Asked, delay_s: float = math.inf) -> None:
        """Have the agent start an attempt; `delay_s`: it waits less for others than it may."""
        asked.sent = True
        self._put(asked, len(asked.request), delay_s)

    def cancel(self, key: Key) -> None:
        """Have the agent cancel an attempt."""
        self._put(key, _CANCEL_BYTES, 0.0)

    def grant(self, events: int) -> None:
        """Let the agent send more events."""
        credit = agent_pb2.CollectCredit(events=events)
        self._say(agent_pb2.CollectRequest(credit=credit))

    def acknowledge(self, cursor: int) -> None:
        """Say that all outcomes up to a cursor are stored."""
        self._say(agent_pb2.CollectRequest(ack=agent_pb2.CollectAck(cursor=cursor)))

    def end(self) -> None:
        """Nothing more will be said; what is on its way leaves."""
        self._bell.close()

    async def requests(
        self, hello: agent_pb2.CollectHello
    ) -> AsyncIterator[agent_pb2.CollectRequest | bytes]:
        """The messages as they leave, hello first; some in their bytes."""
        yield agent_pb2.CollectRequest(hello=hello)
        more = True
        while more:
            more = await self._bell.called()
            for batch in self._batches():
                for message in _messages(batch, self._now()):
                    yield message

    def _say(self, message: agent_pb2.CollectRequest) -> None:
        self._put(message, message.ByteSize())

    def _put(self, item: _Item, size: int, delay_s: float = math.inf) -> None:
        bell, items = self._bell, self._items
        if bell.closed:
            return
        items.append(item)
        self._size += size
        many = len(items) >= _MAX_ITEMS or self._size >= _MAX_BYTES
        bell.want(0.0 if many else delay_s)

    def _batches(self) -> Iterable[list[_Item]]:
        """All that waits, no more than a message may have at a time."""
        items, self._items = self._items, []
        size, self._size = self._size, 0
        if size <= _MAX_BYTES and len(items) <= _MAX_ITEMS:
            return (items,)
        return _portions(items)


def _portions(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    portion: list[_Item] = []
    room = _MAX_BYTES
    for item in items:
        size = _size_of(item)
        if portion and (size > room or len(portion) == _MAX_ITEMS):
            yield portion
            portion, room = [], _MAX_BYTES
        portion.append(item)
        room -= size
    yield portion


def _size_of(item: _Item) -> int:
    if isinstance(item, Asked):
        return len(item.request)
    return _CANCEL_BYTES if isinstance(item, tuple) else item.ByteSize()


def _messages(items: Iterable[_Item], now: float) -> Iterator[agent_pb2.CollectRequest | bytes]:
    """A batch as messages: starts that stand side by side share one, and so do cancels."""
    for kind, run in groupby(items, type):
        alike: Any = run  # of this type, all of them
        if kind is Asked:
            yield packed_starts(alike, now)
        elif kind is tuple:
            yield cancels_message(alike)
        else:
            yield from alike
