"""Holds back rollouts that need an unreachable service, and probes the service until it works
again.

Each agent has its own gate. An unreachable model, environment or sandbox service closes the gate of
the rollouts that are known to need it: all with the same environment and agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_client.dispatch.causes import Ended
from gymmesh_runtime.timers import doubled_s

_FIRST_S: Final = 0.25
_LONGEST_S: Final = 15.0
_LONGEST_MESSAGE: Final = 300

Route = tuple[str, str]
"""The environment and the agent of a rollout."""


@dataclass(slots=True)
class Gate:
    """Open, or closed with one probe at a time.

    Attributes:
        patience_s: how long it may stay closed.
        wait_factor: multiplies the waits between probes.
        closed_since: when it closed; None: it is open.
        probe: the order of the rollout that probes; None: none does.
        opens_at: when the next probe may start.
    """

    patience_s: float
    wait_factor: float = 1.0
    closed_since: float | None = None
    probe: int | None = None
    opens_at: float = 0.0
    _refusals: int = 0

    def admits(self, now: float) -> bool:
        """Whether a rollout may start."""
        if self.closed_since is None:
            return True
        return self.probe is None and now >= self.opens_at

    def started(self, order: int) -> None:
        """A rollout starts; through a closed gate it is the probe."""
        if self.closed_since is not None:
            self.probe = order

    def refused(
        self, now: float, order: int, retry_after_s: float | None, away_s: float = 0.0
    ) -> None:
        """What is behind it took no rollout, and has been away for so long already."""
        if self.probe == order:
            self.probe = None
        if self.closed_since is None:
            self.closed_since, self._refusals = now - away_s, 0
        if now >= self.opens_at:
            # Refusals of rollouts that started together are one.
            self._refusals += 1
            wait = self.wait_factor * doubled_s(_FIRST_S, self._refusals)
            self.opens_at = now + min(_LONGEST_S, max(wait, retry_after_s or 0.0))

    def passed(self) -> None:
        """What is behind it takes rollouts."""
        self.closed_since = self.probe = None
        self.opens_at = 0.0

    def abandoned(self, order: int) -> None:
        """A rollout ended and says nothing; if it was the probe, another one may follow."""
        if self.probe == order:
            self.probe = None

    def is_hopeless(self, now: float) -> bool:
        """Whether patience is at its end. While a probe runs, it may still bring good news."""
        since = self.closed_since
        return since is not None and self.probe is None and now - since >= self.patience_s

    def wake_at(self) -> tuple[float, ...]:
        """When to ask again although nothing has ended: for the next probe, and for patience."""
        if self.closed_since is None or self.probe is not None:
            return ()
        return self.opens_at, self.closed_since + self.patience_s


@dataclass(slots=True)
class ServiceGate(Gate):
    """Holds back the rollouts of one route while a service that they need is unreachable.

    Attributes:
        name: the unreachable service, in words.
        message: the message of the last failure.
        shown_by: the events of the probe that show that the service is reachable again. The probe's
            end shows it in any case.
    """

    name: str = ""
    message: str = ""
    shown_by: frozenset[str] = frozenset()


class ServiceGates:
    """The routes whose rollouts lack a service at present."""

    def __init__(self, patience_s: float, wait_factor: float) -> None:
        self._patience_s = patience_s
        self._wait_factor = wait_factor
        #: Closed ones only; one that opens is forgotten.
        self.closed: dict[Route, ServiceGate] = {}

    def admits(self, route: Route, now: float) -> bool:
        """Whether a rollout of the route may start."""
        gate = self.closed.get(route)
        return gate is None or gate.admits(now)

    def lost(self, route: Route, order: int, now: float, ended: Ended) -> ServiceGate:
        """A rollout of the route found a service away; gives the gate, which is closed."""
        gate = self.closed.get(route)
        if gate is None:
            gate = self.closed[route] = ServiceGate(self._patience_s, self._wait_factor)
        if gate.probe in (None, order):
            # What started earlier may lack something else, which the probe would not show.
            gate.name, gate.shown_by = _what_is_away(route, ended)
            gate.message = " ".join(ended.message.split())[:_LONGEST_MESSAGE]
        gate.refused(now, order, ended.retry_after_s)
        return gate

    def event_came(self, route: Route, order: int, kind: str) -> None:
        """An event of a rollout came."""
        gate = self.closed.get(route)
        if gate is not None and gate.probe == order and kind in gate.shown_by:
            del self.closed[route]

    def ended(self, route: Route, order: int, reason: int | None = None) -> None:
        """A rollout completed (no reason), or failed for another one than a service away."""
        gate = self.closed.get(route)
        if gate is not None and gate.probe == order and reason not in _SAY_NOTHING:
            del self.closed[route]
        else:
            self.abandoned(route, order)

    def abandoned(self, route: Route, order: int) -> None:
        """A rollout was cancelled."""
        gate = self.closed.get(route)
        if gate is not None:
            gate.abandoned(order)


# Endings of a probe that leave open whether the service is there.
_SAY_NOTHING: Final = {
    errors_pb2.ERROR_REASON_MODEL_TIMEOUT,
    errors_pb2.ERROR_REASON_MODEL_SERVER_ERROR,
    errors_pb2.ERROR_REASON_DEADLINE_PASSED,
}


# The events of a probe that show that what an environment does at a boundary is there again.
_SHOWN_BY: Final[Mapping[int, frozenset[str]]] = {
    rollout_pb2.BOUNDARY_RESOURCE: frozenset(("started",)),
    rollout_pb2.BOUNDARY_TOOL: frozenset(("tool_call_completed", "turn_completed")),
}


def _what_is_away(route: Route, ended: Ended) -> tuple[str, frozenset[str]]:
    """What a failure names, and the events that show that it is there again."""
    if ended.boundary == rollout_pb2.BOUNDARY_MODEL:
        model = ended.metadata.get("model") or ended.component
        # Of a model that the environment calls, such as a judge, no event speaks.
        own = model == ended.component
        return f"model '{model}'", frozenset(("model_call_completed",) if own else ())
    if ended.boundary == rollout_pb2.BOUNDARY_SANDBOX:
        return f"the sandbox service of environment '{route[0]}'", frozenset(("sandbox_opened",))
    return f"environment '{route[0]}'", _SHOWN_BY.get(ended.boundary, frozenset())
