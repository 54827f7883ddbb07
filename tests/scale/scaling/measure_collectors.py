"""One to four real collectors on one real mesh, each with its shard; their outputs are merged.

The mesh is `gym-cli up`'s, a process for each service, over a fake endpoint in a process of its
own. Counted is the CPU time of each process, and what each collector got.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from gymmesh_client import OutputFiles
from gymmesh_client.output.merge import merge
from gymmesh_mesh import up
from gymmesh_runtime.serving.loop import run
from tests.scale.rollout_bench import usage
from tests.scale.rollout_bench.contender import ROOT
from tests.scale.rollout_bench.model import endpoint
from tests.scale.rollout_bench.ours import configuration

#: The model is fitted to the first, and held to the others.
COLLECTORS: Final = (1, 2, 3, 4)
ROLLOUTS: Final = 4_000
IN_FLIGHT: Final = 512  # of all together
_MODULE: Final = "tests.scale.scaling.one_collector"
_BOUND_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class CollectorFigures:
    """So many collectors on one mesh.

    Attributes:
        per_s: rollouts a second, of all together.
        least_per_s: of the collector that got the fewest.
        most_per_s: of the one that got the most.
        cpu_us: microseconds of CPU time of a rollout, by process: collector (all of them), agent,
            model, environment, registry, endpoint.
    """

    collectors: int
    per_s: float
    least_per_s: float
    most_per_s: float
    cpu_us: dict[str, float]


class Running:
    """A collector's process."""

    def __init__(self, stack: ExitStack, *arguments: str) -> None:
        command = [sys.executable, "-m", _MODULE, *arguments]
        self.process = stack.enter_context(
            subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        )
        stack.callback(self._end)
        self._hear()

    def begin(self) -> None:
        """Starts collecting."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def done(self) -> dict[str, float]:
        """What came of it, once it is over."""
        found: dict[str, float] = json.loads(self._hear())
        return found

    def _hear(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a collector ended early")
        return line

    def _end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()


def measure(
    folder: Path, collectors: int, agents: Sequence[str], pids: dict[str, int], rollouts: int
) -> CollectorFigures:
    """So many collectors side by side, of one run."""
    with ExitStack() as stack:
        started = [
            Running(
                stack,
                f"scaling-{folder.name}-{collectors}",  # no run before had it
                str(folder / f"{collectors}-{index}.jsonl"),
                f"{index}/{collectors}",
                str(rollouts),
                str(IN_FLIGHT // collectors),
                *agents,
            )
            for index in range(collectors)
        ]
        before = {name: usage.cpu_clock_s(pid) for name, pid in pids.items()}
        began = time.monotonic()
        for one in started:
            one.begin()
        done = [one.done() for one in started]
        wall_s = time.monotonic() - began
        cpu = {name: usage.cpu_clock_s(pid) - before[name] for name, pid in pids.items()}
    cpu["collector"] = sum(one["cpu_s"] for one in done)
    # The shards are a run, whole and once.
    parts = [folder / f"{collectors}-{index}.jsonl" for index in range(collectors)]
    whole = merge(parts, OutputFiles(folder / f"{collectors}.jsonl"))
    if whole.tally.completed != rollouts:
        raise RuntimeError(f"not all completed: {whole.tally}")
    shares = [one["completed"] / one["wall_s"] for one in done]
    return CollectorFigures(
        collectors,
        rollouts / wall_s,
        min(shares),
        max(shares),
        {name: seconds / rollouts * 1e6 for name, seconds in sorted(cpu.items())},
    )


async def _measure_all(rollouts: int) -> list[dict[str, Any]]:
    found = []
    with endpoint() as model, tempfile.TemporaryDirectory() as folder:
        async with up(configuration(model.url, "mesh")) as running:
            pids = {one.kind: one.pid for one in running.infos} | {"endpoint": model.pid}
            agents = [one.address for one in running.infos if one.kind == "agent"]
            warm = Path(folder, "warm")
            warm.mkdir()
            await asyncio.to_thread(measure, warm, 1, agents, pids, rollouts // 8)
            for count in COLLECTORS:
                one = await asyncio.to_thread(measure, Path(folder), count, agents, pids, rollouts)
                print(f"  collectors: {one}", flush=True)
                found.append(asdict(one))
    return found


def measure_all(rollouts: int = ROLLOUTS) -> list[dict[str, Any]]:
    """The figures of all numbers of collectors, as JSON values."""
    return run(_measure_all(rollouts))
