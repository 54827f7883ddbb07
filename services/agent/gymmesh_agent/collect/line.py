"""One connection of a stream: when something leaves on it, and what a batch of events is."""

from __future__ import annotations

from collections.abc import Sequence

from gymmesh.agent.v1 import agent_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.wire.pace import PacedBell
from gymmesh_runtime.wire.twins import PackedResponse


class Line(PacedBell):
    """When something leaves on one connection; events stay in the stream's ledger until then.

    Args:
        flush_s: the longest that an event waits for others, in seconds.
    """

    def __init__(self, flush_s: float) -> None:
        super().__init__(flush_s)
        #: Why it ends; None: well.
        self.error: MeshError | None = None
        #: Whether the collector has said all that it had to say.
        self.finishing = False
        self._said: list[agent_pb2.CollectResponse] = []

    def say(self, message: agent_pb2.CollectResponse) -> None:
        """Have a message other than events leave now; nothing happens on a closed line."""
        if not self.closed:
            self._said.append(message)
            self.ring()

    def end(self, error: MeshError | None = None) -> None:
        """Take no more; what is on its way leaves, and then the connection ends."""
        if not self.closed:
            self.error = error
            self.close()

    def said(self) -> list[agent_pb2.CollectResponse]:
        """The messages that `say` took, once."""
        said, self._said = self._said, []
        return said


def packed_events(events: Sequence[bytes], cursor: int) -> bytes:
    """The CollectResponse that carries these events, in its bytes."""
    message = PackedResponse()
    batch = message.events
    batch.cursor = cursor
    batch.events.extend(events)
    packed: bytes = message.SerializeToString()
    return packed
