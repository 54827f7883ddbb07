"""Measures the CPU cost of a rollout for a trainer: gymmesh, a bare loop, TRL and verifiers.

    python tests/scale/bench_trainer.py [--quick] [--rounds N] [--in-flight N …]

A rollout has two model calls by token ids to an engine in the same process, one tool call, a
verdict by string match, and its tokens with mask and log probabilities. The contenders take turns,
each in a separate process. The bench prints medians of the rounds: CPU milliseconds per rollout,
rollouts per second, and the milliseconds from a group's last token until the trainer has the
group.

TRL's loop is the loop of GRPOTrainer with tools, with a replaced sampling function. This loop
needs the virtual environment of `tools/setup-handoff.sh trainers`. If this environment exists, all
contenders use it, with the same tokenizer. verifiers (`make bench-peers`) can't use an engine in
its own process. verifiers calls a fake endpoint over HTTP, whose CPU time is not counted. A
contender that is not installed is printed as ABSENT.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.scale.report import machine, table
from tests.scale.rollout_bench.contender import ROOT, Contender, ContenderFailed
from tests.scale.rollout_bench.model import endpoint
from tests.scale.trainer_bench.work import REPEATS

_TRAINERS: Final = ROOT / ".cache" / "handoff" / "trainers" / "bin" / "python"
_VERIFIERS: Final = ROOT / ".cache" / "bench" / "verifiers" / "bin" / "python"
NAMES: Final = ("bare", "ours", "trl_loop")
_TITLES: Final = {
    "bare": "bare asyncio",
    "ours": "TrainerCollector",
    "trl_loop": "TRL's own loop",
    "verifiers": "verifiers (HTTP)",
}
_LATE_S: Final = 0.2
#: Answers as slow as a real engine's: the processor isn't busy, so groups don't wait for it.
_SLOW: Final = (512, 10.0)
Point = tuple[int, float]
Found = dict[tuple[str, Point], list[dict[str, Any]]]


def run_one(python: str, name: str, rollouts: int, point: Point) -> dict[str, Any] | None:
    """A contender's figures; None where it can't run."""
    in_flight, late_s = point
    given = [name, str(rollouts), str(in_flight), str(late_s)]
    command = [python, "tests/scale/trainer_bench/run.py", *given]
    path = {"PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT))))}
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | path, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"{name}: {done.stderr.strip().splitlines()[-1][:300]}", file=sys.stderr)
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_verifiers(rollouts: int, point: Point) -> dict[str, Any] | None:
    """The figures of verifiers, which has no groups here."""
    in_flight, late_s = point
    with ExitStack() as stack:
        model = stack.enter_context(endpoint())
        model.answer_within(0.0, late_s)
        line = [str(_VERIFIERS), "-m", "tests.scale.rollout_bench.peer_verifiers"]
        try:
            contender = Contender.start("verifiers", [*line, model.url], stack)
            contender.run(max(in_flight, 10), in_flight)
            cost = contender.run(rollouts, in_flight)
        except ContenderFailed as error:
            print(error, file=sys.stderr)
            return None
    return {"cpu_ms": cost.cpu_ms, "per_s": cost.per_s, "p50_ms": None, "p99_ms": None}


def measure(points: list[Point], rounds: int, share: float) -> Found:
    """All contenders at all points, in turns."""
    python = str(_TRAINERS) if _TRAINERS.exists() else sys.executable
    found: Found = defaultdict(list)
    for point in points:
        rollouts = max(point[0], int(4 * point[0] * share) // REPEATS * REPEATS)
        for _ in range(rounds):
            for name in NAMES:
                absent = name == "trl_loop" and (not _TRAINERS.exists() or point[1])
                figures = None if absent else run_one(python, name, rollouts, point)
                if figures is not None:
                    found[name, point].append(figures)
        if _VERIFIERS.exists() and point != _SLOW:
            figures = run_verifiers(max(point[0], 128), point)
            if figures is not None:
                found["verifiers", point].append(figures)
    return found


def report(found: Found, points: list[Point]) -> str:
    """The tables."""
    names = (*NAMES, "verifiers")
    heads = [
        "rollouts in flight, time until the engine answers",
        *(_TITLES[name] for name in names),
    ]

    def cells(key: str, digits: int) -> list[list[str]]:
        return [
            [_label(point), *(_median(found[name, point], key, digits) for name in names)]
            for point in points
        ]

    late = [
        " / ".join(_median(found["ours", point], key, 1) for key in ("p50_ms", "p99_ms"))
        for point in points
    ]
    return "\n\n".join(
        [
            "CPU time per rollout in ms:",
            table(heads, cells("cpu_ms", 2)),
            "Rollouts per second:",
            table(heads, cells("per_s", 0)),
            "TrainerCollector: time from a group's last token until the trainer has the group, "
            "p50 / p99, ms:",
            table([heads[0], *map(_label, points)], [["TrainerCollector", *late]]),
            machine(),
        ]
    )


def _label(point: Point) -> str:
    in_flight, late_s = point
    late = f"0–{late_s:g} s" if late_s >= 1 else f"0–{late_s * 1e3:.0f} ms"
    return f"{in_flight:,} in flight, {f'answers after {late}' if late_s else 'answers at once'}"


def _median(figures: list[dict[str, Any]], key: str, digits: int) -> str:
    known = [one[key] for one in figures if one[key] is not None]
    return f"{statistics.median(known):.{digits}f}" if known else "ABSENT"


def main() -> int:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="one round with a quarter of the rollouts"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default: 5)")
    parser.add_argument(
        "--in-flight",
        type=int,
        nargs="+",
        default=[64, 512, 2048],
        help="numbers of rollouts in flight (default: 64 512 2048)",
    )
    arguments = parser.parse_args()
    points = [(one, late_s) for one in arguments.in_flight for late_s in (0.0, _LATE_S)]
    points.append(_SLOW)
    rounds, share = (1, 0.25) if arguments.quick else (arguments.rounds, 1.0)
    print(report(measure(points, rounds, share), points))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
