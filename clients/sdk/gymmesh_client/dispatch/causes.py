"""What each kind of failure means for a further attempt: the one table.

A failure has the last word on whether a fresh attempt is safe (`retry_safe`). Where it is, this
table says how: whether the attempt counts against the rollout's attempts, how long to wait, and
whether it is a sign that too much is in flight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2

Reason = errors_pb2.ErrorReason
_LONGEST_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Cause:
    """How to go on after one kind of failure.

    Attributes:
        counts: it is one of the rollout's attempts. What was refused for want of room was not
            tried, and does not count; the time that a rollout may take bounds it instead.
        first_s: the wait before the next attempt; it doubles from one to the next.
        crowded: too much is in flight.
    """

    counts: bool = True
    first_s: float = 0.5
    crowded: bool = False

    def wait_s(self, times: int, retry_after_s: float | None, factor: float = 1.0) -> float:
        """Seconds to wait after this happened `times` times, multiplied by `factor`; what the
        failing side asked for is the least.
        """
        doubled: float = factor * self.first_s * 2.0 ** min(times - 1, 30)
        return min(_LONGEST_S, max(doubled, retry_after_s or 0.0))


_USUAL: Final = Cause()
_NO_ROOM: Final = Cause(counts=False, first_s=1.0, crowded=True)
_UNREACHED: Final = Cause(counts=False, first_s=1.0, crowded=True)

CAUSES: Final[Mapping[int, Cause]] = MappingProxyType(
    {
        # Refused for want of room.
        Reason.ERROR_REASON_QUEUE_FULL: _NO_ROOM,
        Reason.ERROR_REASON_SESSION_LIMIT: _NO_ROOM,
        # The endpoint's limits: the model service has retried already, within its own bounds.
        Reason.ERROR_REASON_MODEL_RATE_LIMITED: Cause(first_s=5.0, crowded=True),
        # Somebody is away; it takes a while until he is back.
        Reason.ERROR_REASON_SERVICE_NOT_FOUND: Cause(first_s=2.0),
        Reason.ERROR_REASON_PEER_UNAVAILABLE: Cause(first_s=1.0),
        Reason.ERROR_REASON_MUX_BROKEN: Cause(first_s=1.0),
        Reason.ERROR_REASON_DRAINING: Cause(first_s=1.0),
        Reason.ERROR_REASON_MODEL_UNREACHABLE: Cause(first_s=2.0),
        Reason.ERROR_REASON_MODEL_SERVER_ERROR: Cause(first_s=2.0),
        # The weights have moved on: a fresh rollout begins with the new ones.
        Reason.ERROR_REASON_WEIGHTS_STALE: Cause(first_s=0.0),
    }
)

_AWAY: Final = frozenset(
    (Reason.ERROR_REASON_SERVICE_NOT_FOUND, Reason.ERROR_REASON_PEER_UNAVAILABLE)
)
_AGENTS_OWN: Final = frozenset((rollout_pb2.BOUNDARY_UNSPECIFIED, rollout_pb2.BOUNDARY_AGENT))

# An agent's refusal to begin: nothing was done, and none of its other rollouts would fare better.
_AGENT_AWAY: Final = frozenset(
    (
        Reason.ERROR_REASON_SERVICE_NOT_FOUND,
        Reason.ERROR_REASON_PEER_UNAVAILABLE,
        Reason.ERROR_REASON_MUX_BROKEN,
        Reason.ERROR_REASON_DRAINING,
        Reason.ERROR_REASON_QUEUE_FULL,
    )
)


def cause_of(reason: int, boundary: int = rollout_pb2.BOUNDARY_UNSPECIFIED) -> Cause:
    """The table's entry; reasons without one are retried as usual.

    A model or an environment that the agent can't reach did nothing for the rollout, and all that
    begin meanwhile would use up their attempts in no time: that does not count. An agent that
    can't be reached any more has lost the attempt, which does.
    """
    if reason in _AWAY and boundary not in _AGENTS_OWN:
        return _UNREACHED
    return CAUSES.get(reason, _USUAL)


def agent_is_away(reason: int, boundary: int, *, begun: bool) -> bool:
    """Whether a failure says that the agent takes no rollouts at present, not that one failed."""
    return not begun and boundary == rollout_pb2.BOUNDARY_AGENT and reason in _AGENT_AWAY
