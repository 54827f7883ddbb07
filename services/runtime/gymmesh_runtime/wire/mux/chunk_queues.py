"""Large messages beside small ones: their chunks take turns. Pure.

A message of many chunks does not go into the send queue at once, or everything behind it would
wait for the whole of it. One chunk is in the send queue at a time; the others wait here, in one
queue for each call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from gymmesh_runtime.wire.mux.frames import Frame, size_of


class ChunkQueues:
    """Frames of the calls that have a large message under way, in order for each call."""

    def __init__(self) -> None:
        self._queues: dict[int, deque[Frame]] = {}
        self._turns: deque[int] = deque()  # calls, next one first
        self.size = 0  # bytes that wait

    def __len__(self) -> int:
        return len(self._turns)

    def __contains__(self, call: int) -> bool:
        """Whether frames of this call wait, so that further ones must wait behind them."""
        return call in self._queues

    def add(self, call: int, frames: Iterable[Frame]) -> None:
        """Adds frames of a call behind those that wait."""
        queue = self._queues.get(call)
        if queue is None:
            queue = self._queues[call] = deque()
            self._turns.append(call)
        for frame in frames:
            queue.append(frame)
            self.size += size_of(frame)

    def next(self) -> Frame | None:
        """Removes the next frame, of the call whose turn it is; None when nothing waits."""
        if not self._turns:
            return None
        call = self._turns.popleft()
        queue = self._queues[call]
        frame = queue.popleft()
        self.size -= size_of(frame)
        if queue:
            self._turns.append(call)
        else:
            del self._queues[call]
        return frame

    def drop(self, call: int) -> None:
        """Forgets what a call still had to send."""
        queue = self._queues.pop(call, None)
        if queue is not None:
            self._turns.remove(call)
            self.size -= sum(map(size_of, queue))
