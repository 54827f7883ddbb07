"""Large messages beside small ones: their chunks take turns. Pure.

A message of many chunks does not go into the queue at once, or everything behind
it would wait for the whole of it. One chunk is in the queue at a time; the others
wait here, one lane a call, and the lanes take turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from gymmesh_runtime.wire.mux.frames import Frame, size_of


class Lanes:
    """Frames of the calls that have a large message under way, in order for each call."""

    __slots__ = ("_lanes", "_turn", "size")

    def __init__(self) -> None:
        self._lanes: dict[int, deque[Frame]] = {}
        self._turn: deque[int] = deque()  # calls, next one first
        self.size = 0  # bytes that wait

    def __len__(self) -> int:
        return len(self._turn)

    def __contains__(self, call: int) -> bool:
        """Whether frames of this call wait, so that further ones must wait behind them."""
        return call in self._lanes

    def add(self, call: int, frames: Iterable[Frame]) -> None:
        """Adds frames of a call behind those that wait."""
        lane = self._lanes.get(call)
        if lane is None:
            lane = self._lanes[call] = deque()
            self._turn.append(call)
        for frame in frames:
            lane.append(frame)
            self.size += size_of(frame)

    def next(self) -> Frame | None:
        """Removes the next frame, of the call whose turn it is; None when nothing waits."""
        if not self._turn:
            return None
        call = self._turn.popleft()
        lane = self._lanes[call]
        frame = lane.popleft()
        self.size -= size_of(frame)
        if lane:
            self._turn.append(call)
        else:
            del self._lanes[call]
        return frame

    def drop(self, call: int) -> None:
        """Forgets what a call still had to send."""
        lane = self._lanes.pop(call, None)
        if lane is not None:
            self._turn.remove(call)
            self.size -= sum(map(size_of, lane))
