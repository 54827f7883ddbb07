"""The dispatcher's options and decisions."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class State(enum.Enum):
    """The state of a run."""

    RUNNING = "running"
    PAUSED = "paused"
    DRAINING = "draining"


class Decision(enum.Enum):
    """What the collector does after an attempt has ended."""

    RECORD = "record"
    RETRY = "retry"
    GIVE_UP = "give up"
    PUT_BACK = "put back"
    """It was never begun: the same attempt waits for its agent."""
    LEAVE = "leave"
    """The run ends, and another attempt would have followed: the rollout has no outcome."""


class RunStateError(Exception):
    """A command that the run's state does not allow; its text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchOptions:
    """How to dispatch.

    Attributes:
        concurrency: the maximum number of rollouts in flight.
        max_attempts: the maximum number of attempts of one rollout in one run, including the first.
        retry_share: the maximum number of retries, as a share of the started rollouts, plus 100.
        rollout_s: no attempt starts later than this many seconds after the rollout's first attempt.
        starts_per_s: the maximum number of starts per second; None: no limit.
        shares: weights of environments in a mix; empty: the order of the tasks.
        patience_s: how many seconds an agent, a model or an environment may be unreachable before
            the run drains, and how long a rollout may be refused because a queue is full.
        max_failures: the run drains after this many failed rollouts; None: never.
        max_alike: the run drains after this many consecutive rollouts that failed for the same
            reason, if no retry can help; 0: never.
        wait_factor: multiplies the waits before a retry, or before a probe of an agent.
    """

    concurrency: int = 64
    max_attempts: int = 2
    retry_share: float = 1.0
    rollout_s: float = float("inf")
    starts_per_s: float | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    patience_s: float = 300.0
    max_failures: int | None = None
    max_alike: int = 20
    wait_factor: float = 1.0
