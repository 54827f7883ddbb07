"""Measures the CPU time of one rollout in gymmesh, a bare aiohttp loop and two peers.

    python tests/scale/bench_rollout.py [--quick] [--rounds N] [--in-flight N …] [--only NAME …]
                                        [--one-processor]

A rollout has two model calls over HTTP to a fake endpoint in a separate process, one tool call and
a verdict by string match. gymmesh also delivers every event, and writes row and journal to disk.

The bench counts CPU time (user and system) of all processes of a contender, without the endpoint.
Each contender is started once. At each point the contenders take turns, so that changes of the
machine's speed affect all of them. The first run of a point warms up and is not counted. If the
processor's counters are readable, a further run of each round with 512 rollouts in flight counts
cycles. Cycles do not include the work of other users of a shared machine. The bench prints medians,
and medians of the ratios to the floor (the bare loop) in the same round. A peer that is not
installed is printed as ABSENT; tools/setup-bench-peers.sh installs the peers. Without `--quick` and
`--only`, the bench writes its section of docs/reference/performance.md.

With `--one-processor`, the endpoint and all contenders without the peers run on one processor, with
512 rollouts in flight. Two virtual processors of a shared machine can be one physical processor.
Then code that keeps both virtual processors busy is charged up to twice the CPU time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gymmesh_mesh.layout import usual_cells
from gymmesh_runtime.serving.processors import usable_processors
from tests.scale.report import machine, table, write_section
from tests.scale.rollout_bench import counters
from tests.scale.rollout_bench.contender import ROOT, Contender, ContenderFailed, Cost
from tests.scale.rollout_bench.model import endpoint
from tests.scale.rollout_bench.ours import CELLS

_PACKAGE: Final = "tests.scale.rollout_bench"
_PEERS: Final = ROOT / ".cache" / "bench"
LAYOUTS: Final = ("embedded", "cell", "cells", "mesh")
PEERS: Final = ("verifiers", "nemo")
# At most so many times the floor, at 512 in flight; and the peers take so many times ours at least.
TARGETS: Final = {"embedded": 3.5, "cell": 4.0, "cells": 4.0, "mesh": 4.5}
CHEAPER: Final = 9.0
_LATE_S: Final = 0.1
# Rollouts of a run by what is in flight: enough that a run takes a second or more.
_COUNTS: Final = {1: 200, 64: 2048, 512: 4096}
_PEER_COUNTS: Final = {1: 30, 64: 192, 512: 512}
_COUNTED: Final = 512  # in flight, for the processor's counters
_LATE_ALONE: Final = 40  # one at a time, each waiting for its model most of the time
_Point = tuple[int, float]


@dataclass(slots=True)
class Found:
    """What was measured of one contender."""

    costs: dict[_Point, list[Cost]] = field(default_factory=dict)
    counts: dict[_Point, list[counters.Counted]] = field(default_factory=dict)  # per rollout
    absent: str = ""
    version: str = ""
    processes: int = 0
    idle_mb: float = 0.0
    busy_mb: float = 0.0
    ready_s: float = 0.0


def command(name: str, url: str) -> list[str]:
    """The command line of a contender."""
    if name in PEERS:
        python = _PEERS / name / "bin" / "python"
        return [str(python), "-m", f"{_PACKAGE}.peer_{name}", url]
    if name == "floor":
        return [sys.executable, "-m", f"{_PACKAGE}.floor", url]
    return [sys.executable, "-m", f"{_PACKAGE}.ours", url, name]


def start(name: str, url: str, stack: ExitStack, found: Found) -> Contender | None:
    """Starts a contender; a peer that can't be started is absent, and says why."""
    line = command(name, url)
    if name in PEERS and not Path(line[0]).exists():
        found.absent = "not installed"
        return None
    try:
        contender = Contender.start(name, line, stack)
    except ContenderFailed as error:
        if name not in PEERS:
            raise
        found.absent = str(error)
        return None
    found.version, found.ready_s = contender.version, contender.ready_s
    found.processes, found.idle_mb = contender.processes, contender.idle_mb
    return contender


def measure(
    names: Sequence[str], points: Sequence[_Point], rounds: int, share: float
) -> dict[str, Found]:
    """Every contender at every point; they take turns. `share` of the usual rollouts."""
    found = {name: Found() for name in names}
    can_count = counters.available()
    with ExitStack() as stack:
        model = stack.enter_context(endpoint())
        running = {name: start(name, model.url, stack, found[name]) for name in names}
        for point in points:
            in_flight, late_s = point
            model.answer_within(0.0, late_s)
            for number in range(rounds + 1):
                for name, contender in running.items():
                    peer = name in PEERS
                    if contender is None or (peer and number > 1):
                        continue
                    count = _rollouts(point, share, peer=peer)
                    cost = contender.run(count if number else max(in_flight, 10), in_flight)
                    if number:
                        found[name].costs.setdefault(point, []).append(cost)
                    if number and can_count and in_flight == _COUNTED and not peer:
                        counted = contender.count(count, in_flight)
                        found[name].counts.setdefault(point, []).append(counted)
            print(_line(point, found), flush=True)
        for name, contender in running.items():
            if contender is not None:
                found[name].busy_mb = contender.mb
    return found


def _rollouts(point: _Point, share: float, *, peer: bool) -> int:
    """How many rollouts a run of a contender has."""
    in_flight, late_s = point
    usual = (_PEER_COUNTS if peer else _COUNTS).get(in_flight, 4 * in_flight)
    if in_flight == 1 and late_s:
        usual = min(usual, _LATE_ALONE)
    return max(in_flight, int(usual * share))


def cpu_ms(found: Found, point: _Point) -> float | None:
    """The median of the rounds."""
    costs = found.costs.get(point)
    return statistics.median(one.cpu_ms for one in costs) if costs else None


def ratio(of: Found, to: Found, point: _Point) -> float | None:
    """The median over the rounds of one's CPU time to the other's in the same round."""
    return _by_round(
        [one.cpu_ms for one in of.costs.get(point, ())],
        [one.cpu_ms for one in to.costs.get(point, ())],
    )


def cycles_ratio(of: Found, to: Found, point: _Point) -> float | None:
    """As `ratio`, of the processor's cycles."""
    return _by_round(
        [one.cycles for one in of.counts.get(point, ())],
        [one.cycles for one in to.counts.get(point, ())],
    )


def _by_round(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    # A run may be too short for the clock of CPU time, which goes in hundredths of a second.
    ratios = [one / other for one, other in zip(ours, theirs, strict=False) if other]
    return statistics.median(ratios) if ratios else None


def _shown(figure: float | None, digits: int) -> str:
    return "–" if figure is None else f"{figure:.{digits}f}"


_POINT: Final = "rollouts in flight, model latency"
_SIZES: Final = (
    "contender", "processes", "memory when idle, MB", "memory after the runs, MB", "ready after, s"
)  # fmt: skip


def _label(point: _Point) -> str:
    late = f"0–{point[1] * 1e3:.0f} ms" if point[1] else "0 ms"
    return f"{point[0]} in flight, {late}"


def _line(point: _Point, found: dict[str, Found]) -> str:
    floor = found["floor"]
    parts = [f"{_label(point):>24}"]
    for name, one in found.items():
        against = ratio(one, floor, point)
        parts.append(f"{name} {_shown(cpu_ms(one, point), 2)} ({_shown(against, 2)} ×)")
    return "  ".join(parts)


def _title(name: str, one: Found) -> str:
    titles = {
        "floor": "bare aiohttp",
        "nemo": "NeMo Gym",
        "plain": "mesh, plain RPCs",
        "mtls": "mesh over mTLS",
        "cell": _cells(usual_cells(usable_processors())) + " (default)",
        "cells": _cells(CELLS),
    }
    title = titles.get(name, name)
    return f"{title} {one.version}" if name in PEERS and one.version else title


def _cells(number: int) -> str:
    return "1 cell" if number == 1 else f"{number} cells"


def report(found: dict[str, Found], points: Sequence[_Point]) -> str:
    """The section of the page."""
    names = list(found)
    heads = [_title(name, found[name]) for name in names]
    floor = found["floor"]

    def cells(point: _Point, name: str) -> str:
        one = found[name]
        if one.absent:
            return "ABSENT"
        against = ratio(one, floor, point)
        figure = _shown(cpu_ms(one, point), 2)
        return figure if name == "floor" or against is None else f"{figure} ({against:.1f} ×)"

    def speed(point: _Point, name: str) -> str:
        costs = found[name].costs.get(point)
        return _shown(statistics.median(one.per_s for one in costs) if costs else None, 0)

    cost = [[_label(point), *(cells(point, name) for name in names)] for point in points]
    speeds = [[_label(point), *(speed(point, name) for name in names)] for point in points]
    size = [
        [
            _title(name, one),
            str(one.processes),
            f"{one.idle_mb:.0f}",
            f"{one.busy_mb:.0f}",
            f"{one.ready_s:.1f}",
        ]
        for name, one in found.items()
        if not one.absent
    ]
    sections = [
        "CPU time per rollout in milliseconds, all processes of a contender together. Brackets "
        "have the ratio to the bare loop:",
        table([_POINT, *heads], cost),
        "Rollouts per second:",
        table([_POINT, *heads], speeds),
        *_of_tls(found, points),
        *_counted(found, points),
        *_against_peers(found, points),
        "Memory (PSS, the proportional set size) of all processes of a contender, and the time "
        "from the start command until the contender is ready. The figures include the "
        "collector's process:",
        table(_SIZES, size),
        *[
            f"{_title(name, one)}: ABSENT ({one.absent})."
            for name, one in found.items()
            if one.absent
        ],
        machine(),
    ]
    return "\n\n".join(sections)


def _of_tls(found: dict[str, Found], points: Sequence[_Point]) -> list[str]:
    if "mtls" not in found or "mesh" not in found:
        return []
    ratios = [_shown(ratio(found["mtls"], found["mesh"], point), 2) for point in points]
    heads = [_POINT, *map(_label, points)]
    return [
        "CPU of the mesh with mutual TLS and authorisation, divided by the CPU of the mesh without "
        "them:",
        table(heads, [["CPU of mesh over mTLS / CPU of mesh", *ratios]]),
    ]


def _counted(found: dict[str, Found], points: Sequence[_Point]) -> list[str]:
    names = [name for name, one in found.items() if one.counts]
    if not names:
        return []
    heads = [_title(name, found[name]) for name in names]
    rows = []
    for point in (one for one in points if one in found["floor"].counts):
        row = [_label(point)]
        for name in names:
            figure = statistics.median(one.cycles for one in found[name].counts[point]) / 1e3
            against = cycles_ratio(found[name], found["floor"], point)
            row.append(f"{figure:,.0f}" if name == "floor" else f"{figure:,.0f} ({against:.2f} ×)")
        rows.append(row)
    instructions = ["instructions, user space"]
    for name in names:
        every = [one.instructions for counts in found[name].counts.values() for one in counts]
        instructions.append(f"{statistics.median(every) / 1e3:,.0f}")
    return [
        "Processor cycles per rollout in thousands, in user space and in the kernel. Brackets "
        "have the ratio to the bare loop:",
        table([_POINT, *heads], [*rows, instructions]),
    ]


def _against_peers(found: dict[str, Found], points: Sequence[_Point]) -> list[str]:
    rows = []
    for peer in PEERS:
        if peer not in found or found[peer].absent:
            continue
        for point in points:
            against = [ratio(found[peer], found[name], point) for name in found if name in LAYOUTS]
            parts = [_shown(one, 1) for one in against]
            rows.append([_title(peer, found[peer]), _label(point), *parts])
    if not rows:
        return []
    ours = [_title(name, one) for name, one in found.items() if name in LAYOUTS]
    heads = ["peer", _POINT, *ours]
    return [
        "CPU of a peer, divided by the CPU of the layout in the column's head. For example, 2.0 "
        "means that the peer takes twice as much CPU as gymmesh in this layout:",
        table(heads, rows),
    ]


def misses(found: dict[str, Found]) -> list[str]:
    """One sentence for each target that was measured and not reached."""
    lines = []
    for name, most in TARGETS.items():
        for late_s in (0.0, _LATE_S):
            one = ratio(found[name], found["floor"], (512, late_s)) if name in found else None
            if one is not None and one > most:
                lines.append(
                    f"{name}, {_label((512, late_s))}: {one:.2f} × the CPU of the bare loop, "
                    f"target at most {most} ×"
                )
            lines += _too_near(found, name, (512, late_s))
    return lines


def _too_near(found: dict[str, Found], name: str, point: _Point) -> list[str]:
    """One sentence for each peer that takes less than `CHEAPER` times what a layout takes."""
    peers = [peer for peer in PEERS if peer in found and name in found]
    times = {peer: ratio(found[peer], found[name], point) for peer in peers}
    return [
        f"{peer}, {_label(point)}: {one:.1f} × the CPU of {name}, target at least {CHEAPER:.0f} ×"
        for peer, one in times.items()
        if one is not None and one < CHEAPER
    ]


def main() -> int:
    """Prints the figures and writes the section."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="do a tenth of the work, and don't write the page"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds at each point (default: 5)")
    parser.add_argument(
        "--in-flight",
        type=int,
        nargs="+",
        default=[1, 64, 512],
        help="numbers of rollouts in flight (default: 1 64 512)",
    )
    everyone = ["floor", *LAYOUTS, "mtls", "plain", *PEERS]
    parser.add_argument(
        "--only",
        nargs="+",
        choices=everyone,
        default=everyone,
        help="measure only these contenders and the floor (the bare loop); don't write the page",
    )
    parser.add_argument(
        "--one-processor",
        action="store_true",
        help="run the model endpoint and all contenders on one processor, without the peers, "
        "with 512 rollouts in flight",
    )
    arguments = parser.parse_args()
    if arguments.one_processor:
        everyone, arguments.in_flight = ["floor", *LAYOUTS], [512]
    names = [name for name in everyone if name in arguments.only or name == "floor"]
    points = [(one, late_s) for one in arguments.in_flight for late_s in (0.0, _LATE_S)]
    rounds, share = (1, 0.1) if arguments.quick else (arguments.rounds, 1.0)
    if arguments.one_processor:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # inherited by all that is started
    found = measure(names, points, rounds, share)
    text = report(found, points)
    print(f"\n{text}\n")
    for line in misses(found):
        print(f"target missed: {line}")
    if not arguments.quick and names == everyone:
        name = "make bench, one processor" if arguments.one_processor else "make bench"
        write_section(name, text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
