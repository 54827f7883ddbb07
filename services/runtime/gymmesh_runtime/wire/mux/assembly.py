"""Messages whose last chunk is still missing: how much memory they may take.

A peer that begins large messages and never ends them holds what it has sent, so the bytes are
counted: on each connection, and over all connections of a server.
"""

from __future__ import annotations

from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.wire.batch import MIB

_RETRY_S: Final = 1.0


class AssemblyBudget:
    """Bytes of unfinished messages, over all connections that share it.

    No connection may hold more than is free. So a connection by itself has half of it, and
    several that take all they can still leave some to the next one.
    """

    __slots__ = ("total", "used")

    def __init__(self, total: int = 512 * MIB) -> None:
        self.total = total
        self.used = 0


class Assembly:
    """The unfinished messages of one connection: at most ``most`` bytes, and its part of a budget.

    ``held`` is how many bytes they take.
    """

    __slots__ = ("_budget", "_most", "held")

    def __init__(self, most: int, budget: AssemblyBudget) -> None:
        self._most = most
        self._budget = budget
        self.held = 0

    def take(self, size: int) -> MeshError | None:
        """Counts ``size`` more bytes; QUEUE_FULL, which is returned, when there is no room."""
        budget, held = self._budget, self.held + size
        if held > self._most:
            return _full("this connection", self._most)
        if held > budget.total - budget.used - size:
            return _full("this server", budget.total)
        self.held = held
        budget.used += size
        return None

    def give_back(self, size: int) -> None:
        """Counts ``size`` bytes less."""
        self.held -= size
        self._budget.used -= size

    def close(self) -> None:
        """Gives back all: the connection is over."""
        self.give_back(self.held)


class Parts:
    """The chunks of a message under way; ``cost`` is what is counted for them."""

    __slots__ = ("cost", "data")

    def __init__(self) -> None:
        # One piece of memory: many small chunks, each an object, would take more than they say.
        self.data = bytearray()
        self.cost = 0


def _full(where: str, limit: int) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_QUEUE_FULL,
        f"too many large messages are incomplete on {where}; try again later",
        metadata={"queue": "mux", "limit": str(limit)},
        retry_after_s=_RETRY_S,
    )
