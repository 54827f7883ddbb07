"""The events of one attempt, on their way from the agent to the one who reads them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from time import time_ns
from typing import Any

from gymmesh.rollout.v1 import rollout_pb2

_BOUND = 256

Send = Callable[[rollout_pb2.RolloutEvent], Awaitable[None] | None]
"""Takes an event over. Where it returns something to wait for, the sender waits for it before it
sends more: that is how a slow reader slows a rollout down instead of filling the memory."""


class EventStream:
    """Numbers events and hands them over in order; keeps the stream law of rollout.proto.

    An event is in its place as soon as `emit` is called, whatever `emit` then waits for.
    """

    __slots__ = ("_attempt", "_closed", "_rollout_id", "_send", "count")

    def __init__(self, rollout_id: str, attempt: int, send: Send) -> None:
        self._rollout_id = rollout_id
        self._attempt = attempt
        self._send = send
        self._closed = False
        #: How many events there were so far.
        self.count = 0

    async def emit(self, event: rollout_pb2.RolloutEvent) -> None:
        """Send an event; ids, sequence and time are filled in.

        Raises:
            RuntimeError: the attempt has ended (a task of an agent outlived its rollout).
        """
        room = self.put(event)
        if room is not None:
            await room

    def end(self, event: rollout_pb2.RolloutEvent) -> None:
        """Send the terminal event. Nothing can follow it."""
        self.put(event)
        self._closed = True

    def close(self) -> None:
        """End the stream, with or without a terminal event."""
        self._closed = True

    def put(self, event: rollout_pb2.RolloutEvent) -> Awaitable[None] | None:
        """As `emit`, without the wait, which is given back where there is one."""
        if self._closed:
            raise RuntimeError("the rollout has ended; no event can follow its last")
        self.count = count = self.count + 1
        event.rollout_id = self._rollout_id
        event.attempt = self._attempt
        event.sequence = count
        event.record_time_unix_nano = time_ns()
        send = self._send  # called as a method, it would be looked for in the class first
        return send(event)


class EventQueue:
    """Events that wait to be read by one reader.

    `put` is a `Send`: beyond 256 unread events it gives the sender something to wait for.
    """

    def __init__(self) -> None:
        self._unread: deque[rollout_pb2.RolloutEvent] = deque()
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._closed = False

    def put(self, event: rollout_pb2.RolloutEvent) -> Awaitable[None] | None:
        """Take an event over."""
        self._unread.append(event)
        self._wake.set()
        if len(self._unread) < _BOUND or self._closed:
            return None
        self._room.clear()
        return _Room(self._room)

    def close(self) -> None:
        """No event will come any more."""
        self._closed = True
        self._room.set()
        self._wake.set()

    async def next(self) -> rollout_pb2.RolloutEvent | None:
        """The next event, or None when there is none left and none will come."""
        while not self._unread:
            if self._closed:
                return None
            self._wake.clear()
            await self._wake.wait()
        event = self._unread.popleft()
        if len(self._unread) < _BOUND:
            self._room.set()
        return event


class _Room:
    """A wait that need not be waited for, as a coroutine would have to be."""

    __slots__ = ("_event",)

    def __init__(self, event: asyncio.Event) -> None:
        self._event = event

    def __await__(self) -> Generator[Any, None, None]:
        yield from self._event.wait().__await__()
