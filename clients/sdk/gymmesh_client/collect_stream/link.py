"""One connection to an agent: what leaves on it, in batches."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import groupby
from typing import Final

from gymmesh.agent.v1 import agent_pb2
from gymmesh_client.collect_stream.book import Asked, Key, cancels_message, packed_starts
from gymmesh_runtime.wire.batch import BatchLimits, Outbox

_Item = Asked | agent_pb2.CollectRequest | tuple[str, int]
_CANCEL_BYTES: Final = 64  # about; what an id takes
# An agent begins all starts of a message in one go: no more of them than it can in a moment.
_MAX_STARTS: Final = 256


class Link:
    """What leaves on one connection.

    Args:
        flush_s: the longest that a start waits for others, in seconds.
        now: the clock in whose seconds attempts are due.
    """

    def __init__(self, flush_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._outbox: Outbox[_Item] = Outbox(BatchLimits(max_items=_MAX_STARTS, delay_s=flush_s))
        self._now = now

    def start(self, asked: Asked, delay_s: float | None = None) -> None:
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
        self._outbox.close()

    async def requests(
        self, hello: agent_pb2.CollectHello
    ) -> AsyncIterator[agent_pb2.CollectRequest | bytes]:
        """The messages as they leave, hello first; some in their bytes."""
        yield agent_pb2.CollectRequest(hello=hello)
        while batch := await self._outbox.batch():
            for message in _messages(batch, self._now()):
                yield message

    def _say(self, message: agent_pb2.CollectRequest) -> None:
        self._put(message, message.ByteSize())

    def _put(self, item: _Item, size: int, delay_s: float | None = None) -> None:
        if not self._outbox.closed:
            self._outbox.put(item, size, delay_s=delay_s)


def _messages(batch: Iterable[_Item], now: float) -> Iterator[agent_pb2.CollectRequest | bytes]:
    """A batch as messages: starts that stand side by side share one, and so do cancels."""
    for kind, run in groupby(batch, type):
        items = list(run)
        if kind is Asked:
            yield packed_starts((one for one in items if isinstance(one, Asked)), now)
        elif kind is tuple:
            yield cancels_message(one for one in items if isinstance(one, tuple))
        else:
            yield from (one for one in items if isinstance(one, agent_pb2.CollectRequest))
