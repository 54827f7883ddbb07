"""A run's figures while it runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gymmesh_client.collector import metrics
from gymmesh_client.summary import Tally

_WINDOW: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A run's progress.

    Attributes:
        tally: counts of outcomes; the collector's own object, which changes.
        state: running, paused, draining, finished or stopped.
        why: why the run ends, or ended, before every rollout had an outcome; otherwise empty.
        interrupted: whether a signal asked for the end; the next one cancels what is in flight.
        in_flight: attempts that agents run, or hold in their queues.
        queued: how many of `in_flight` wait in the agents' queues.
        ending: ended attempts whose outcomes are being scored or written.
        retrying: rollouts that wait before a retry.
        width: current limit of running attempts: `concurrency`, or fewer while agents or
            environments are full.
        concurrency: the requested limit of running attempts.
        away: the agents, models and environments that rollouts wait for, with their last error.
        groups: finished groups that no trainer has acknowledged.
        held: whether new groups wait for an acknowledgement.
        rollouts_per_s: recent outcomes per second.
        tokens_per_s: recent output tokens per second.
    """

    tally: Tally
    state: str
    why: str
    in_flight: int
    queued: int
    ending: int
    retrying: int
    width: int
    concurrency: int
    away: Mapping[str, str]
    groups: int
    held: bool
    rollouts_per_s: float
    tokens_per_s: float
    interrupted: bool = False

    def seconds_left(self, requested: int) -> float | None:
        """Seconds until this many rollouts have an outcome, at the current rate; None: unknown."""
        left = requested - self.tally.completed - self.tally.failed
        if left <= 0:
            return 0.0
        return left / self.rollouts_per_s if self.rollouts_per_s > 0 else None

    def show(self) -> None:
        """Set the gauges of this process to them."""
        metrics.COLLECTOR_ROLLOUTS_KEPT.set(self.tally.kept + self.tally.kept_failed)
        metrics.COLLECTOR_IN_FLIGHT.set(self.in_flight)
        metrics.COLLECTOR_CONCURRENCY.set(self.width)
        metrics.COLLECTOR_RETRIES_WAITING.set(self.retrying)
        metrics.COLLECTOR_ENDING.set(self.ending)
        metrics.GROUPS_WAITING.set(self.groups)


@dataclass(slots=True)
class Rates:
    """Rates over the last samples, which are taken about once a second."""

    _samples: deque[tuple[float, int, int]] = field(
        default_factory=lambda: deque(maxlen=_WINDOW + 1)
    )

    def sample(self, now: float, tally: Tally) -> None:
        """Take note of how far it is."""
        self._samples.append((now, tally.completed + tally.failed, tally.output_tokens))

    def per_s(self, now: float, tally: Tally) -> tuple[float, float]:
        """Outcomes and output tokens a second."""
        if not self._samples:
            return 0.0, 0.0
        since, done, tokens = self._samples[0]
        seconds = now - since
        if seconds <= 0.0:
            return 0.0, 0.0
        ended = tally.completed + tally.failed - done
        return ended / seconds, (tally.output_tokens - tokens) / seconds
