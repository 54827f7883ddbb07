"""Sends a run of gym-cli collect, or a profile of gym-cli profile, to a tracker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from gymmesh_cli.options import TrackOptions
from gymmesh_cli.shared.interrupts import on_interrupt
from gymmesh_cli.terminal import echo, one_line
from gymmesh_client import Collector, RunOutput
from gymmesh_data.track import ProfileTracking, TrackerLink, Tracking

if TYPE_CHECKING:
    from gymmesh_data.profile import Profile


@asynccontextmanager
async def tracked(
    options: TrackOptions, output: RunOutput, collector: Collector
) -> AsyncIterator[Tracking]:
    """Tracks the collector's run while the context is open. The first problem is reported on
    stderr. Ctrl-C ends the wait for the tracker at the end.
    """
    link = TrackerLink(options.tracker, _warn)
    tracking = Tracking(link, output, project=options.project, samples=options.samples)

    def groups() -> Mapping[str, int] | None:
        return collector.group_stream.store.counts() if collector.options.hand_out else None

    async with tracking.live(collector.figures, groups):
        try:
            yield tracking
        finally:
            on_interrupt(link.cut_short)
    if tracking.lost:
        _warn(tracking.lost)


def profile_tracking_of(options: TrackOptions) -> ProfileTracking:
    """The tracking of a profile. The first problem is reported on stderr."""
    link = TrackerLink(
        options.tracker, _warn, without="the profile is complete without the tracker"
    )
    return ProfileTracking(link, project=options.project, samples=options.samples)


async def send_profile(
    tracking: ProfileTracking, made: Profile, on_begun: Callable[[dict[str, Any]], None]
) -> None:
    """Send a profile. Ctrl-C ends the wait for the tracker. `on_begun` as for `send` there."""
    on_interrupt(tracking.link.cut_short)
    await tracking.send(made, on_begun)
    if tracking.lost:
        _warn(tracking.lost)


def _warn(sentence: str) -> None:
    echo(f"gym-cli: {one_line(sentence)}", err=True)
