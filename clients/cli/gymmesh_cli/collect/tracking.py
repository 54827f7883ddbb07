"""A collector's run at a tracker, as gym-cli collect has it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from gymmesh_cli.options.track import TrackOptions
from gymmesh_cli.terminal import echo, one_line
from gymmesh_client import Collector, RunOutput
from gymmesh_data.track import TrackerLink, Tracking


def tracking_of(options: TrackOptions, output: RunOutput) -> Tracking:
    """The tracking of a run; what first goes wrong with it is said on stderr."""
    link = TrackerLink(options.tracker, _warn)
    return Tracking(link, output, project=options.project, samples=options.samples)


@asynccontextmanager
async def tracked(tracking: Tracking, collector: Collector) -> AsyncIterator[None]:
    """Tracks the collector's run meanwhile. Ctrl-C cuts short what the tracker takes at the end."""

    def groups() -> Mapping[str, int] | None:
        return collector.group_stream.store.counts() if collector.options.hand_out else None

    async with tracking.live(collector.figures, groups):
        try:
            yield
        finally:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, tracking.cut_short)
    if tracking.lost:
        echo(f"gym-cli: {one_line(tracking.lost)}", err=True)


def _warn(sentence: str) -> None:
    echo(f"gym-cli: {one_line(sentence)}", err=True)
