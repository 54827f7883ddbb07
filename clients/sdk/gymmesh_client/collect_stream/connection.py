"""One connection to an agent: what is sent on it, in batches."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gymmesh.agent.v1 import agent_pb2
from gymmesh_client.collect_stream.state import Key, StreamedAttempt
from gymmesh_runtime.wire import KIB, SendTimer

# An agent begins all starts of a message in one go: no more of them than it can in a moment.
_MAX_STARTS: Final = 256
_MAX_BYTES: Final = 256 * KIB  # of a message, unless one start alone has more


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Bounds of a stream.

    Attributes:
        credit: the most events on their way from the agent.
        hello_s: seconds within which an agent must answer hello.
        silence_s: seconds without a message, while attempts are in flight, after which the
            connection is taken for dead.
        reconnect_s: seconds after which a lost agent is given up, and all in flight with it.
        backoff_s: the first wait before connecting again; it doubles up to `backoff_cap_s`.
        backoff_cap_s: the longest of these waits.
        acknowledge_s: seconds for which an acknowledgement waits for others.
        flush_s: the longest that a start waits for others, in seconds; less when fewer than some
            hundred attempts are in flight.
    """

    credit: int = 8192
    hello_s: float = 10.0
    silence_s: float = 45.0
    reconnect_s: float = 30.0
    backoff_s: float = 0.1
    backoff_cap_s: float = 2.0
    acknowledge_s: float = 0.1
    flush_s: float = 0.02


class Connection:
    """What is to be sent on one connection: starts, cancels, credit and an acknowledgement.

    Args:
        limits: how long starts and acknowledgements wait for others.
        now: the clock in whose seconds attempts are due.
    """

    def __init__(self, limits: StreamLimits, now: Callable[[], float]) -> None:
        self._timer = SendTimer(limits.flush_s)
        self._acknowledge_s = limits.acknowledge_s
        self._next_ack = 0.0
        self._now = now
        self._starts: dict[Key, StreamedAttempt] = {}
        self._cancels: list[Key] = []
        self._credit = 0
        self._acknowledged = 0

    def start(self, attempt: StreamedAttempt, in_flight: int) -> None:
        """Have the agent start an attempt, soon, with so many in flight."""
        self._starts[attempt.key] = attempt
        if len(self._starts) >= _MAX_STARTS:
            self._timer.wake()
        else:
            self._timer.send_soon(in_flight)

    def cancel(self, key: Key) -> None:
        """Have the agent cancel an attempt; one whose start was not sent yet is never sent."""
        if self._starts.pop(key, None) is None:
            self._cancels.append(key)
            self._timer.wake()

    def grant(self, events: int) -> None:
        """Let the agent send so many events more."""
        self._credit += events
        self._timer.send_within()

    def acknowledge(self, cursor: int) -> None:
        """Say that all outcomes up to a cursor are stored."""
        self._acknowledged = cursor
        self._timer.send_within(self._acknowledge_s)

    def end(self) -> None:
        """Send what there is, and nothing after it."""
        self._timer.close()

    async def requests(
        self, hello: agent_pb2.CollectHello
    ) -> AsyncIterator[agent_pb2.CollectRequest]:
        """The messages as they are sent, hello first."""
        yield agent_pb2.CollectRequest(hello=hello)
        more = True
        while more:
            more = await self._timer.wait()
            for message in self._messages():
                yield message

    def _messages(self) -> list[agent_pb2.CollectRequest]:
        """All that is to be sent. Cancels go first: an attempt may be asked for once more."""
        starts, self._starts = self._starts, {}
        cancels, self._cancels = self._cancels, []
        credit, self._credit = self._credit, 0
        messages = []
        if cancels:
            refs = [agent_pb2.AttemptRef(rollout_id=key[0], attempt=key[1]) for key in cancels]
            cancelled = agent_pb2.CollectCancels(attempts=refs)
            messages.append(agent_pb2.CollectRequest(cancels=cancelled))
        messages += [_starts_message(one, self._now()) for one in _batches(starts.values())]
        if credit:
            granted = agent_pb2.CollectCredit(events=credit)
            messages.append(agent_pb2.CollectRequest(credit=granted))
        if self._acknowledged and (self._now() >= self._next_ack or self._timer.closed):
            ack = agent_pb2.CollectAck(cursor=self._acknowledged)
            messages.append(agent_pb2.CollectRequest(ack=ack))
            self._acknowledged = 0
            self._next_ack = self._now() + self._acknowledge_s
        elif self._acknowledged:
            self._timer.send_within(self._acknowledge_s)
        return messages


def _batches(attempts: Iterable[StreamedAttempt]) -> Iterator[list[StreamedAttempt]]:
    """Starts in batches of a bounded number and size."""
    batch: list[StreamedAttempt] = []
    room = _MAX_BYTES
    for attempt in attempts:
        size = attempt.request.ByteSize()
        if batch and (size > room or len(batch) == _MAX_STARTS):
            yield batch
            batch, room = [], _MAX_BYTES
        batch.append(attempt)
        room -= size
    if batch:
        yield batch


def _starts_message(attempts: Sequence[StreamedAttempt], now: float) -> agent_pb2.CollectRequest:
    """The message that starts these; each must end in the time that it still has."""
    message = agent_pb2.CollectRequest()
    for attempt in attempts:
        attempt.sent = True
        start = message.starts.starts.add()
        start.request.CopyFrom(attempt.request)
        start.timeout_ms = max(1, round((attempt.due - now) * 1000))  # zero: no deadline
    return message
