"""The end of a run whose groups go to a trainer."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from gymmesh_cli.shared.interrupts import on_interrupt
from gymmesh_cli.terminal import echo
from gymmesh_client import Collector

_HAND_OVER_S: Final = 60.0


async def hand_over(collector: Collector, shown: str) -> None:
    """Give the trainer time to take the groups that it has not; Ctrl-C cuts it short."""
    stream = collector.group_stream
    # Groups of a rank that dies now still go to the others.
    lease_s = collector.options.consumer_lease_s if stream.readers == "consumers" else 0.0
    waiting = asyncio.create_task(_taken(collector, _HAND_OVER_S + lease_s))
    on_interrupt(waiting.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
        stream.end_sharing()
    left = 0 if stream.delivered else stream.store.unacknowledged
    if left:
        echo(
            f"gym-cli: finished groups that the trainer did not acknowledge: {left}. The "
            "rows of these groups are on disk. Send the groups again: gym-cli collect "
            f"--resume --output {shown}",
            err=True,
        )


async def _taken(collector: Collector, timeout_s: float) -> None:
    """Wait until a trainer has all groups, and its ranks may know that the run is over."""
    if await collector.group_stream.emptied(timeout_s):
        await collector.shared_stream.returned()
