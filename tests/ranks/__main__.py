"""Kills ranks and collectors: python -m tests.ranks [--groups N] [--seeds N] [--only KIND]."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path

from tests.ranks.drill import Kill, Plan, run

KINDS: tuple[tuple[str, Kill, bool], ...] = (
    ("any", "any", False),
    ("between", "between", False),
    ("returns", "any", True),
    ("collector", "collector", False),
)


async def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make chaos-ranks",
        description="Kills ranks that share a run's groups, or the collector, and checks that no "
        "group is lost and that no two surviving ranks get the same group.",
    )
    parser.add_argument(
        "--groups", type=int, default=2000, help="groups in each run (default: 2000)"
    )
    parser.add_argument("--ranks", type=int, default=4, help="ranks in each run (default: 4)")
    parser.add_argument(
        "--seeds",
        type=int,
        default=2,
        help="runs of each kind, each with its own seed (default: 2)",
    )
    parser.add_argument("--first-seed", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument(
        "--only",
        choices=[name for name, _, _ in KINDS],
        help="run only one kind. any: a rank is killed at a random moment. between: a rank is "
        "killed after it received a group and before it acknowledged the group. returns: as any, "
        "and the rank is restarted. collector: the collector is killed and resumed",
    )
    asked = parser.parse_args()
    wrong = 0
    for name, kill, returns in KINDS:
        if asked.only not in (None, name):
            continue
        for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
            plan = Plan(seed, asked.groups, asked.ranks, kill=kill, returns=returns)
            with tempfile.TemporaryDirectory() as folder:
                os.environ["GYMMESH_RUNTIME_DIR"] = str(Path(folder) / "runtime")
                result = await run(plan, Path(folder) / "run")
            print(result.line(), flush=True)
            wrong += bool(result.violations)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
