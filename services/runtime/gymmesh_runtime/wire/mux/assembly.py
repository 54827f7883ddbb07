"""How much memory messages may use while their last chunk is missing.

A peer that begins large messages and never ends them uses memory for the chunks it sent. So the
bytes are counted: on each stream, and over all streams of a server.
"""

from __future__ import annotations

from typing import Protocol

from gymmesh_runtime.errors import MeshError, queue_full
from gymmesh_runtime.sizes import MIB


class AssemblyBudget:
    """Bytes of unfinished messages, over all streams that share the budget.

    No stream may use more than is free for the others. So a single stream can use half of the
    budget. If several streams use all they can, some is still left for the next stream.
    """

    def __init__(self, total: int = 512 * MIB) -> None:
        self.total = total
        self.used = 0


class Chunks:
    """The chunks of an unfinished message; ``cost`` is the number of bytes counted for them."""

    def __init__(self) -> None:
        # One piece of memory: many small chunks, each an object, would take more than they say.
        self.data = bytearray()
        self.cost = 0


class _Receiving(Protocol):
    """A call with a message under way, if it is not None."""

    chunks: Chunks | None


class Assembly:
    """The unfinished messages of one stream: at most ``most`` bytes, and at most its part of a
    budget.

    Each message costs ``call_bytes`` in addition to its chunks. ``held`` is the number of bytes
    used.
    """

    def __init__(self, most: int, budget: AssemblyBudget, call_bytes: int = 0) -> None:
        self._most = most
        self._budget = budget
        self._call_bytes = call_bytes
        self.held = 0

    def take(self, size: int) -> MeshError | None:
        """Counts ``size`` more bytes. If there is no room, returns QUEUE_FULL."""
        budget, held = self._budget, self.held + size
        if held > self._most:
            return _full("this connection", self._most)
        if held > budget.total - budget.used - size:
            return _full("this server", budget.total)
        self.held = held
        budget.used += size
        return None

    def give_back(self, size: int) -> None:
        self.held -= size
        self._budget.used -= size

    def close(self) -> None:
        """Frees all bytes, because the stream has ended."""
        self.give_back(self.held)

    def add(self, call: _Receiving, payload: bytes) -> MeshError | None:
        """Stores a chunk of a message. If there is no room, returns QUEUE_FULL."""
        chunks = call.chunks
        assert chunks is not None  # it is being received
        cost = len(payload) if chunks.cost else len(payload) + self._call_bytes
        full = self.take(cost)
        if full is None:
            chunks.data += payload
            chunks.cost += cost
        return full

    def join(self, call: _Receiving) -> bytes:
        """Returns the whole message of a call, and forgets it."""
        assert call.chunks is not None  # it was being received
        whole = bytes(call.chunks.data)
        self.drop(call)
        return whole

    def drop(self, call: _Receiving) -> None:
        """Forgets the unfinished message of a call, if there is one."""
        if call.chunks is not None:
            self.give_back(call.chunks.cost)
            call.chunks = None


def _full(where: str, limit: int) -> MeshError:
    message = f"too many large messages on {where} have not arrived completely; try again later"
    return queue_full(message, "mux", limit)
