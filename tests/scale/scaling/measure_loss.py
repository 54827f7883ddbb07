"""Two real meshes, as in two zones, and a collector on both; one mesh is killed in the middle."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from gymmesh_mesh import up
from gymmesh_runtime.serving.loop import run
from tests.scale.rollout_bench import usage
from tests.scale.rollout_bench.contender import ROOT
from tests.scale.rollout_bench.model import endpoint
from tests.scale.rollout_bench.ours import configuration
from tests.scale.scaling.measure_collectors import Running
from tests.scale.scaling.one_collector import RECONNECT_S

IN_FLIGHT: Final = 256
ROLLOUTS: Final = 1024
#: Of each of a rollout's two model calls, in seconds.
MODEL_S: Final = 1.5
#: When the zone is killed, from the start of the run, in seconds.
LOST_AT_S: Final = 4.0
_MODULE: Final = "tests.scale.scaling.measure_loss"


@dataclass(frozen=True, slots=True)
class LossFigures:
    """A zone of two that is killed.

    Attributes:
        whole_s: seconds of the same run while both live.
        lost_s: seconds of the run in which one dies.
        lost_attempts: attempts that were lost with it, and made again.
    """

    rollouts: int
    in_flight: int
    model_s: float
    reconnect_s: float
    lost_at_s: float
    whole_s: float
    lost_s: float
    lost_attempts: int


def _collect(url: str, *, lose: bool) -> dict[str, float]:
    with ExitStack() as stack:
        zones = [stack.enter_context(_zone(url)) for _ in range(2)]
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        addresses = [address for address, _ in zones]
        collector = Running(
            stack,
            "zones",
            str(Path(folder, "rows.jsonl")),
            "0/1",
            str(ROLLOUTS),
            str(IN_FLIGHT),
            *addresses,
        )
        collector.begin()
        if lose:
            time.sleep(LOST_AT_S)
            for pid in usage.family(zones[1][1]):
                os.kill(pid, signal.SIGKILL)
        done = collector.done()
        if done["completed"] != ROLLOUTS:
            raise RuntimeError(f"not all completed: {done}")
        return done


@contextmanager
def _zone(url: str) -> Iterator[tuple[str, int]]:
    """A mesh of its own: its agent's address, and the process that all its processes are of."""
    process = subprocess.Popen(
        [sys.executable, "-m", _MODULE, url],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.communicate()


def measure_all() -> dict[str, Any]:
    """The figures, as JSON values."""
    with endpoint() as model:
        model.answer_within(MODEL_S, MODEL_S)
        whole = _collect(model.url, lose=False)
        lost = _collect(model.url, lose=True)
    found = LossFigures(
        ROLLOUTS, IN_FLIGHT, MODEL_S, RECONNECT_S, LOST_AT_S,
        whole["wall_s"], lost["wall_s"], int(lost["lost"]),
    )  # fmt: skip
    print(f"  zone lost: {json.dumps(asdict(found))}", flush=True)
    return asdict(found)


async def _serve(url: str) -> None:
    async with up(configuration(url, "mesh")) as running:
        (agent,) = [one for one in running.infos if one.kind == "agent"]
        print(agent.address, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    run(_serve(sys.argv[1]))
