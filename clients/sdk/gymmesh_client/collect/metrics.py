"""What is measured of a run: how its rollouts end, and how far it is."""

from __future__ import annotations

from gymmesh_client.boundaries import BOUNDARIES
from gymmesh_client.collect.figures import Figures
from gymmesh_client.summary import Counted
from gymmesh_runtime import metrics

_COMPLETED = metrics.COLLECTOR_ROLLOUTS.labels("completed", "")
_INPUT = metrics.COLLECTOR_TOKENS.labels("input")
_OUTPUT = metrics.COLLECTOR_TOKENS.labels("output")
_OTHER = "OTHER"


def count_completed(figures: Counted) -> None:
    """A completed rollout is on disk."""
    _COMPLETED.value += 1.0
    _INPUT.value += figures.input_tokens
    _OUTPUT.value += figures.output_tokens


def count_failed(boundary: int) -> None:
    """A rollout that failed for good is on disk."""
    metrics.COLLECTOR_ROLLOUTS.labels("failed", _name(boundary)).inc()


def count_retry(boundary: int, reason: str) -> None:
    """An attempt failed for this reason, and is followed by another one."""
    metrics.COLLECTOR_RETRIES.labels(_name(boundary), reason).inc()


def show_figures(figures: Figures) -> None:
    """The run is so far."""
    tally = figures.tally
    metrics.COLLECTOR_ROLLOUTS_KEPT.set(tally.kept + tally.kept_failed)
    metrics.COLLECTOR_IN_FLIGHT.set(figures.in_flight)
    metrics.COLLECTOR_CONCURRENCY.set(figures.width)
    metrics.COLLECTOR_RETRIES_WAITING.set(figures.retrying)
    metrics.COLLECTOR_ENDING.set(figures.ending)
    metrics.GROUPS_WAITING.set(figures.groups)


def _name(boundary: int) -> str:
    """A boundary as a label; an agent may send any number, and a label takes none made up."""
    return BOUNDARIES.get(boundary, _OTHER)
