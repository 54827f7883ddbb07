"""Counts the machine instructions of a rollout with valgrind. Other load changes the count little.

On a shared machine, the CPU time of a rollout changes by half from one minute to the next. So CPU
time can't show a change of two per cent. The number of machine instructions is the same in every
run, to some tenths of a per cent. The number does not include the kernel, and does not show the
effect of caches. The figures that count are those of bench_rollout.py.

    python tests/scale/bench_instructions.py [--only NAME …] [--rollouts N] [--in-flight N]

The work is the same as in bench_rollout.py. Each contender runs twice under valgrind, once with N
rollouts and once without them. The difference, over all processes, is the instructions of the N
rollouts. The bench takes some minutes, mostly to start the processes of the mesh. valgrind must be
installed.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.scale.bench_rollout import LAYOUTS, command
from tests.scale.rollout_bench.contender import Contender
from tests.scale.rollout_bench.model import endpoint

_COUNTED: Final = re.compile(r"I\s+refs:\s+([\d,]+)")
_VALGRIND: Final = (
    "valgrind",
    "--tool=cachegrind",
    "--cache-sim=no",
    "--cachegrind-out-file=/dev/null",
    "--trace-children=yes",
)


def instructions(name: str, url: str, in_flight: int, rollouts: int) -> int:
    """How many a contender's processes run in all, for its start, a warm-up and `rollouts`."""
    with tempfile.TemporaryDirectory() as folder:
        watched = [*_VALGRIND, f"--log-file={folder}/%p", *command(name, url)]
        with ExitStack() as stack:
            contender = Contender.start(name, watched, stack)
            contender.run(in_flight, in_flight)
            if rollouts:
                contender.run(rollouts, in_flight)
        logs = [path.read_text(errors="replace") for path in Path(folder).iterdir()]
    found = [match[1] for log in logs if (match := _COUNTED.search(log))]
    return sum(int(one.replace(",", "")) for one in found)


def per_rollout(name: str, url: str, in_flight: int, rollouts: int) -> float:
    """Instructions of one rollout."""
    before = instructions(name, url, in_flight, 0)
    return (instructions(name, url, in_flight, rollouts) - before) / rollouts


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line for each contender."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    everyone = ("floor", *LAYOUTS)
    parser.add_argument(
        "--only",
        nargs="+",
        choices=everyone,
        default=everyone,
        help="measure only these contenders. floor is the bare loop",
    )
    parser.add_argument("--rollouts", type=int, default=512, help="rollouts (default: 512)")
    parser.add_argument(
        "--in-flight", type=int, default=128, help="rollouts in flight (default: 128)"
    )
    options = parser.parse_args(arguments)
    if shutil.which("valgrind") is None:
        print("valgrind was not found: apt install valgrind, then run again", file=sys.stderr)
        return 1
    with endpoint() as model:
        for name in options.only:
            count = per_rollout(name, model.url, options.in_flight, options.rollouts)
            print(f"{name:>10}: {count / 1e3:,.0f} thousand instructions per rollout", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
