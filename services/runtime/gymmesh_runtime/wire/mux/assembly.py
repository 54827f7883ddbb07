"""Messages whose last chunk is still missing: how much memory they may take.

A peer that begins large messages and never ends them holds what it has sent, so the bytes are
counted: on each stream, and over all streams of a server.
"""

from __future__ import annotations

from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.wire.batch import MIB
from gymmesh_runtime.wire.mux.refusals import assembly_full


class AssemblyBudget:
    """Bytes of unfinished messages, over all streams that share it.

    No stream may hold more than is free. So a stream by itself has half of it, and several that
    take all they can still leave some to the next one.
    """

    __slots__ = ("total", "used")

    def __init__(self, total: int = 512 * MIB) -> None:
        self.total = total
        self.used = 0


class Assembly:
    """The unfinished messages of one stream: at most ``most`` bytes, and its part of a budget.

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
            return assembly_full("this connection", self._most)
        if held > budget.total - budget.used - size:
            return assembly_full("this server", budget.total)
        self.held = held
        budget.used += size
        return None

    def give_back(self, size: int) -> None:
        """Counts ``size`` bytes less."""
        self.held -= size
        self._budget.used -= size

    def close(self) -> None:
        """Gives back all: the stream is over."""
        self.give_back(self.held)


class Chunks:
    """The chunks of a message under way; ``cost`` is what is counted for them."""

    __slots__ = ("cost", "data")

    def __init__(self) -> None:
        # One piece of memory: many small chunks, each an object, would take more than they say.
        self.data = bytearray()
        self.cost = 0
