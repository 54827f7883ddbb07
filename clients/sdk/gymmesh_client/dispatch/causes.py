"""How each kind of failure affects a further attempt: the only table for this.

The failure itself decides whether a fresh attempt is safe (`retry_safe`). If it is, this table
decides how to retry: whether the attempt counts against the rollout's attempts, how long to wait,
whether it shows that too many rollouts are in flight, and whether a service that the rollout needs
is unreachable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_runtime.errors import repeats
from gymmesh_runtime.timers import doubled_s

Reason = errors_pb2.ErrorReason
_LONGEST_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Cause:
    """How to proceed after one kind of failure.

    Attributes:
        counts: whether it counts as one of the rollout's attempts. A start that was refused because
            of a full queue does not count; the rollout's time limit bounds such starts.
        first_s: the wait before the next attempt, in seconds; it doubles with each attempt. For
            unreachable services, a gate decides when to retry.
        crowded: whether the cause is too many rollouts in flight.
    """

    counts: bool = True
    first_s: float = 0.5
    crowded: bool = False

    def wait_s(self, times: int, retry_after_s: float | None, factor: float = 1.0) -> float:
        """Seconds to wait after this happened `times` times, multiplied by `factor`; what the
        failing side asked for is the least.
        """
        doubled = factor * doubled_s(self.first_s, times)
        return min(_LONGEST_S, max(doubled, retry_after_s or 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How an attempt failed.

    Attributes:
        reason: of errors.proto.
        boundary: of rollout.proto.
        retry_safe: whether a fresh attempt is safe.
        begun: whether the agent sent anything of it.
        retry_after_s: what the failing side asked for.
        component: the model, tool, environment or agent that the failure names.
        message: the failure's sentence.
        metadata: the failure's.
        away_s: for how long the agent had been tried in vain by then.
        sent: whether an agent may have heard of it, and may run it still.
    """

    reason: int
    boundary: int
    retry_safe: bool
    begun: bool
    retry_after_s: float | None = None
    component: str = ""
    message: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    away_s: float = 0.0
    sent: bool = False


_USUAL: Final = Cause()
_NO_ROOM: Final = Cause(counts=False, first_s=1.0, crowded=True)
_UNREACHED: Final = Cause(counts=False)

CAUSES: Final[Mapping[int, Cause]] = {
    # Refused for want of room.
    Reason.ERROR_REASON_QUEUE_FULL: _NO_ROOM,
    Reason.ERROR_REASON_SESSION_LIMIT: _NO_ROOM,
    # The endpoint's limits: the model service has retried already, within its own bounds.
    Reason.ERROR_REASON_MODEL_RATE_LIMITED: Cause(first_s=5.0, crowded=True),
    # The agent is away; it takes a while until it is back.
    Reason.ERROR_REASON_SERVICE_NOT_FOUND: Cause(first_s=2.0),
    Reason.ERROR_REASON_PEER_UNAVAILABLE: Cause(first_s=1.0),
    Reason.ERROR_REASON_MUX_BROKEN: Cause(first_s=1.0),
    Reason.ERROR_REASON_DRAINING: Cause(first_s=1.0),
    # The endpoint answers, and fails.
    Reason.ERROR_REASON_MODEL_SERVER_ERROR: Cause(first_s=2.0),
    # The weights have moved on: a fresh rollout begins with the new ones.
    Reason.ERROR_REASON_WEIGHTS_STALE: Cause(first_s=0.0),
}

# What the agent could not reach; at its own boundary it is the agent that could not be reached.
_AWAY: Final = {
    Reason.ERROR_REASON_SERVICE_NOT_FOUND,
    Reason.ERROR_REASON_PEER_UNAVAILABLE,
    Reason.ERROR_REASON_MUX_BROKEN,
    Reason.ERROR_REASON_DRAINING,
}
# An agent's refusal to begin: nothing was done, and none of its other rollouts would fare better.
_AGENT_AWAY: Final = {*_AWAY, Reason.ERROR_REASON_QUEUE_FULL}
_SERVICES: Final = {
    rollout_pb2.BOUNDARY_MODEL,
    rollout_pb2.BOUNDARY_TOOL,
    rollout_pb2.BOUNDARY_RESOURCE,
    rollout_pb2.BOUNDARY_VERIFIER,
}
# What a proxy says of an endpoint that is not there.
_GATEWAY_STATUSES: Final = ("502", "503", "504")
_LONGEST_FAULT: Final = 300


def cause_of(ended: Ended) -> Cause:
    """The table's entry; reasons without one are retried as usual.

    A model, an environment or a sandbox service that is away did nothing for the rollout, and all
    that begin meanwhile would use up their attempts in no time: that does not count. An agent that
    can't be reached any more has lost the attempt, which does.
    """
    if service_is_away(ended):
        return _UNREACHED
    return CAUSES.get(ended.reason, _USUAL)


def agent_is_away(ended: Ended) -> bool:
    """Whether a failure says that the agent takes no rollouts at present, not that one failed."""
    return not ended.begun and lost_its_agent(ended)


def lost_its_agent(ended: Ended) -> bool:
    """Whether the agent went away, or takes no rollouts."""
    return ended.boundary == rollout_pb2.BOUNDARY_AGENT and ended.reason in _AGENT_AWAY


def service_is_away(ended: Ended) -> bool:
    """Whether a model, an environment or a sandbox service that the rollout needs could not be
    reached.
    """
    if ended.reason in _AWAY:
        return ended.boundary in _SERVICES
    if ended.reason == Reason.ERROR_REASON_SANDBOX_LOST:
        # Any other cause says that the sandbox is gone, and nothing of its service.
        return ended.metadata.get("cause") == "unreachable"
    if ended.reason == Reason.ERROR_REASON_MODEL_SERVER_ERROR:
        return ended.metadata.get("http_status") in _GATEWAY_STATUSES
    # An endpoint that drops what it was sent is there, and may do so for what the rollout asks.
    is_unreached = ended.reason == Reason.ERROR_REASON_MODEL_UNREACHABLE
    return is_unreached and ended.metadata.get("sent") != "true"


def is_unknown(ended: Ended) -> bool:
    """Whether the agent's mesh does not know the environment, by the failure's metadata."""
    known = ended.metadata.get("known")
    return (
        ended.reason == Reason.ERROR_REASON_SERVICE_NOT_FOUND
        and ended.boundary == rollout_pb2.BOUNDARY_RESOURCE
        and known is not None
        and ended.metadata.get("name") not in known.split(", ")
    )


def lacks_a_method(ended: Ended) -> bool:
    """Whether the model's service does not offer what the agent asks of it, as scores of choices:
    no rollout of the run would fare better.
    """
    return (
        ended.reason == Reason.ERROR_REASON_NOT_OFFERED
        and ended.boundary == rollout_pb2.BOUNDARY_MODEL
    )


def fault_of(ended: Ended) -> str:
    """What is the same whenever the same code fails in the same place; empty for other failures."""
    if not repeats(ended.reason):
        return ""
    exception, at = ended.metadata.get("exception"), ended.metadata.get("at")
    where = f"{exception} at {at}" if exception and at else ended.message
    return f"{ended.boundary} {ended.reason} {where[:_LONGEST_FAULT]}"
