"""One attempt of a stream: its events go to the ledger, and it ends with one, whatever happens."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.collect.ledger import Key
from gymmesh_agent.collect.problems import cancelled, draining
from gymmesh_agent.collect.roster import Start
from gymmesh_runtime.errors import MeshError, to_status, unforeseen

if TYPE_CHECKING:
    from gymmesh_agent.collect.stream import CollectStream

# With few rollouts under way, whoever waits for one to end should not wait for others' events.
_FEW: Final = 8
# With more, so long for each of them, in seconds: what a batch saves then costs no throughput, as
# it takes longer to run as many.
_DELAY_PER_ATTEMPT_S: Final = 160e-6
_TERMINAL: Final = frozenset(("completed", "failed"))
# Methods of the class: a message looks through the names of its fields to find its own.
_KIND: Final = rollout_pb2.RolloutEvent.WhichOneof
_BYTES: Final = rollout_pb2.RolloutEvent.SerializeToString


class StreamedAttempt(Start):
    """An attempt whose events leave on a stream.

    Its methods are what is handed on, to the one that runs it: each attempt has but one object.
    """

    __slots__ = ("_stream",)

    def __init__(
        self,
        stream: CollectStream,
        key: Key,
        request: agent_pb2.RunRolloutRequest,
        due: float = math.inf,
    ) -> None:
        super().__init__(key, request, due)
        self._stream = stream

    def send(self, event: rollout_pb2.RolloutEvent) -> Awaitable[None] | None:
        """Take its next event over; a Send of gymmesh_agent.events."""
        stream = self._stream
        if stream.gone:
            return None
        line = stream.line
        if _KIND(event, "event") in _TERMINAL:
            stream.ledger.push(_BYTES(event), self.key)
            self.ended = True
            stream.roster.told(self.key)
            if line is not None:
                crowd = len(stream.roster.running)
                line.want(crowd * _DELAY_PER_ATTEMPT_S if crowd > _FEW else 0.0)
            return None
        full = stream.ledger.push(_BYTES(event))
        self.sent += 1
        if line is not None and not line.wanted:
            line.want()
        return stream.room() if full else None

    def end(self, over: asyncio.Future[None]) -> None:
        """It is over, well or not: see that its collector hears how it ended."""
        self.attempt = None  # or the two would keep each other
        stream = self._stream
        if not self.ended and not stream.gone:
            # Every attempt ends with something that the collector hears.
            error = self._cause(over)
            if self.sent:
                self._fail(error)
            else:
                stream.refuse([self.key], error)
        stream.free(self.key)

    def _cause(self, over: asyncio.Future[None]) -> MeshError:
        """Why it ended without a terminal event."""
        name = self._stream.host.name
        fault = None if over.cancelled() else over.exception()
        if fault is not None:
            return unforeseen(fault, f"agent '{name}'")
        return cancelled() if self.cancelled else draining(name)

    def _fail(self, error: MeshError) -> None:
        name, sequence = self._stream.host.name, self.sent + 1
        boundary = rollout_pb2.BOUNDARY_CANCELLED if self.cancelled else rollout_pb2.BOUNDARY_AGENT
        failure = rollout_pb2.Failure(
            boundary=boundary, status=to_status(error), retry_safe=True, component=name
        )
        rollout_id, attempt = self.key
        self.send(
            rollout_pb2.RolloutEvent(
                rollout_id=rollout_id,
                attempt=attempt,
                sequence=sequence,
                record_time_unix_nano=time.time_ns(),
                failed=rollout_pb2.Failed(failure=failure, events=sequence),
            )
        )
