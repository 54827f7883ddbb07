"""Measures many rollouts at the same time, a long run, and long conversations.

    python tests/scale/bench_scale.py [--quick] [--only PART …]

parked   10,000 rollouts in flight wait for a model that takes 30 s: memory of each rollout in all
         processes, compared with a bare aiohttp loop; how long the collector's loop was blocked
inside   65,536 rollouts wait in one process for a model in the same process: memory of each rollout
stream   100,000 rollouts of five events through one collector: its memory, CPU and disk use
turns    rollouts of 2, 8, 32, 128 and 512 turns: bytes and CPU of one turn
latency  the time that a mesh adds to a model call, and the time of a tool call, with 64, 512 and
         10,000 rollouts in flight
sessions 16,384 sessions are opened, called and closed at one environment service

Needs 20,000 open files per process. Prints each missed target, and then exits 1. Without `--quick`
and `--only`, the bench writes its section of docs/reference/performance.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.scale.report import machine, write_section
from tests.scale.rollout_bench.contender import ROOT
from tests.scale.scale_bench import inside, latency, parked, sessions, stream, turns

PARTS: Final = ("parked", "inside", "stream", "turns", "latency", "sessions")
_FILES: Final = 20_000
_TURNS_IN_ALL: Final = 4096


def run_parked(rollouts: int) -> tuple[str, list[str]]:
    """The text and what was not reached."""
    found = {}
    for name in parked.NAMES:
        found[name] = parked.park(name, rollouts)
        print(f"  {name}: {found[name]}", flush=True)
    return parked.report(found, rollouts), list(parked.misses(found))


def run_stream(rollouts: int) -> tuple[str, list[str]]:
    """The text and what was not reached."""
    found = stream.measure(rollouts)
    return stream.report(found), list(stream.misses(found))


def run_turns(rounds: int, in_all: int) -> tuple[str, list[str]]:
    """The text and what was not reached: medians of rounds that alternate."""
    runs: dict[int, list[dict[str, float]]] = {count: [] for count in turns.TURNS}
    for _ in range(rounds):
        for count, figures in runs.items():
            figures.append(_turn(count, max(2, in_all // count)))
    found = {
        count: {key: statistics.median(one[key] for one in figures) for key in figures[0]}
        for count, figures in runs.items()
    }
    return turns.report(found), list(turns.misses(found))


def run_latency(share: float) -> tuple[str, list[str]]:
    """The text and what was not reached. share: of the usual rollouts."""
    found = {}
    for in_flight in latency.MODEL_S:
        for layout in latency.LAYOUTS:
            found[layout, in_flight] = latency.measure(layout, in_flight, share)
            print(f"  {layout}, {in_flight}: {found[layout, in_flight]}", flush=True)
    return latency.report(found), list(latency.misses(found))


def run_inside(rollouts: int) -> tuple[str, list[str]]:
    """The text; nothing is a limit here."""
    return inside.report(inside.measure(rollouts), rollouts), []


def run_sessions(count: int) -> tuple[str, list[str]]:
    """The text and what was not reached."""
    found = sessions.measure(count)
    return sessions.report(found, count), list(sessions.misses(found))


def _turn(count: int, rollouts: int) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.scale.scale_bench.turns", str(count), str(rollouts)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, timeout=600, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def _allow_files() -> None:
    """Takes as many open files as this user may have, for the processes started from here too."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < _FILES:
        print(
            f"warning: this user may open {hard} files per process, and the bench can need "
            f"{_FILES}. Raise the limit with ulimit -n or in /etc/security/limits.conf"
        )


def main() -> int:
    """Prints the figures and writes the section."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="do a tenth of the work, and don't write the page"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=PARTS,
        default=PARTS,
        help="run only these parts, and don't write the page (default: all parts)",
    )
    arguments = parser.parse_args()
    _allow_files()
    share = 10 if arguments.quick else 1
    texts, missed = [], []
    for name in arguments.only:
        print(f"{name} …", flush=True)
        if name == "parked":
            text, lines = run_parked(10_000 // share)
        elif name == "inside":
            text, lines = run_inside(inside.ROLLOUTS // share)
        elif name == "stream":
            text, lines = run_stream(100_000 // share)
        elif name == "turns":
            text, lines = run_turns(1 if arguments.quick else 3, _TURNS_IN_ALL // share)
        elif name == "latency":
            text, lines = run_latency(1 / share)
        else:
            text, lines = run_sessions(sessions.SESSIONS // share)
        print(f"\n{text}\n", flush=True)
        texts.append(text)
        missed += lines
    for line in missed:
        print(f"target missed: {line}")
    if not arguments.quick and set(arguments.only) == set(PARTS):
        write_section("make bench-scale", "\n\n".join([*texts, machine()]))
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
