"""Measures side data of 100 MB per rollout through a mesh of processes.

    python tests/scale/bench_side_data.py [--quick]

The policy returns routed experts for every token of rollouts of four calls. Each rollout has 100
MB of routed experts, and all rollouts are different. This side data passes through the model
service, the agent and the collector, which are separate processes. The bench kills the collector
(SIGKILL) after a third of the rollouts, and resumes the collector. A reader follows the rows as a
trainer does, reads the side data of each sample from the folder, and compares every byte with the
data of the policy.

The folder has a size limit (`side_data.max_bytes`), so that the 25.6 GB need no large disk. The
policy starts no rollout that is more than 64 rollouts ahead of the reader. The bench measures the
memory (RSS) of agent and collector, the delay of timers in their event loops, the same delay in an
idle process, the size of rows, and the CPU to store side data.

Prints each missed target, and then exits 1. Without `--quick` (8 rollouts of 2 MB) and
`--rollouts`, the bench writes its section of docs/reference/performance.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.scale.report import machine, write_section
from tests.scale.side_data_bench.scenario import LARGE, SMALL, Scenario, measure
from tests.scale.side_data_bench.storing import Storing, storing

_KEPT_BYTES: Final = 12_000_000_000


async def main(scenario: Scenario, folder: Path | None) -> int:
    """Prints the figures and writes the section."""
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stored: Storing = await storing(folder / "storing")
        found = await measure(scenario, folder, _KEPT_BYTES)
    text = f"{found.report(scenario)}\n\n{stored.report()}\n\n{machine()}"
    print(f"\n{text}\n")
    missed = [*found.misses(), *stored.misses()]
    for line in missed:
        print(f"target missed: {line}")
    if scenario == LARGE and not missed:
        write_section("make bench-side-data", text)
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="run 8 rollouts of 2 MB, and don't write the page"
    )
    parser.add_argument(
        "--rollouts", type=int, help="number of rollouts of 100 MB; don't write the page"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="folder for all files of the bench, which are kept (default: a temporary folder)",
    )
    arguments = parser.parse_args()
    chosen = SMALL if arguments.quick else LARGE
    if arguments.rollouts:
        chosen = chosen._replace(rollouts=arguments.rollouts)
    raise SystemExit(asyncio.run(main(chosen, arguments.folder)))
