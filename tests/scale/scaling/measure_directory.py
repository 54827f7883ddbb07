"""What a process pays for the instances that it knows of: to choose one, to hear of a change."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from gymmesh_client.collect_stream.pool import AgentPool, least_busy
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serving.loop import run
from tests.scale.scaling.measure_registry import instance

#: The model is fitted to the first and the last, and held to the one between.
SIZES: Final = (20, 200, 2000)
_AGENT: Final = "gymmesh.agent.v1.AgentService"
_CHOICES: Final = 4000
_CHANGES: Final = 50
_ROUNDS: Final = 5


@dataclass(frozen=True, slots=True)
class DirectoryFigures:
    """Microseconds of CPU time in a process that knows so many instances of one name.

    Attributes:
        choose_us: to choose the instance for a rollout, by affinity.
        change_us: to take in one change.
        assign_us: a collector's, to find the least busy agent for an attempt.
    """

    instances: int
    choose_us: float
    change_us: float
    assign_us: float


def measure(instances: int) -> DirectoryFigures:
    """The figures of one size."""
    directory = PeerDirectory()
    directory.replace([instance(number) for number in range(instances)])
    choices = max(20, _CHOICES * SIZES[0] // instances)
    before = time.process_time()
    for number in range(choices):
        directory.choose(_AGENT, "tool_loop", affinity=f"ro-{number}")
    choose_s = (time.process_time() - before) / choices
    changed = instance(0)
    before = time.process_time()
    for _ in range(_CHANGES):
        directory.upsert(changed)
    change_s = (time.process_time() - before) / _CHANGES
    # Without a connection, which takes a network; an instance with one is no cheaper to look at.
    pool = AgentPool(directory)
    agents = [pool._instance(one) for one in directory.serving(_AGENT, "tool_loop")]
    before = time.process_time()
    for _ in range(choices):
        least_busy(agents)
    assign_s = (time.process_time() - before) / choices
    return DirectoryFigures(instances, choose_s * 1e6, change_s * 1e6, assign_s * 1e6)


async def _all() -> list[DirectoryFigures]:
    measure(SIZES[0])  # what the first calls cost counts for nothing
    rounds = [[measure(size) for size in SIZES] for _ in range(_ROUNDS)]
    return [_median(same) for same in zip(*rounds, strict=True)]


def _median(same: Sequence[DirectoryFigures]) -> DirectoryFigures:
    """Of each figure of one size."""
    return DirectoryFigures(
        same[0].instances,
        statistics.median(one.choose_us for one in same),
        statistics.median(one.change_us for one in same),
        statistics.median(one.assign_us for one in same),
    )


def measure_all() -> list[dict[str, Any]]:
    """The figures of all sizes, as JSON values."""
    found = [asdict(one) for one in run(_all())]
    for one in found:
        print(f"  directory: {one}", flush=True)
    return found
