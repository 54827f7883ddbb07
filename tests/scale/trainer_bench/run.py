"""Runs a contender.

    python tests/scale/trainer_bench/run.py NAME ROLLOUTS IN_FLIGHT LATE_S

Prints a line of JSON: CPU milliseconds per rollout, rollouts per second, and milliseconds from a
group's last token to the group.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import tests

# Some library of trainers installs a package of this name, too.
tests.__path__ = [str(Path(__file__).parents[2]), *tests.__path__]


def main(name: str, rollouts: int, in_flight: int, late_s: float) -> dict[str, Any]:
    """What it measured."""
    contender = import_module(f"tests.scale.trainer_bench.{name}")
    with contextlib.redirect_stdout(sys.stderr):
        found = asyncio.run(contender.measure(rollouts, in_flight, late_s))
    late = sorted(found.late_s)
    return {
        "cpu_ms": found.cpu_s / rollouts * 1e3,
        "per_s": rollouts / found.wall_s,
        "p50_ms": late[len(late) // 2] * 1e3 if late else None,
        "p99_ms": late[int(len(late) * 0.99)] * 1e3 if late else None,
    }


if __name__ == "__main__":
    given = sys.argv[1:]
    print(json.dumps(main(given[0], int(given[1]), int(given[2]), float(given[3]))))
