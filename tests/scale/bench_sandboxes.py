"""Measures bubblewrap sandboxes, plain subprocesses and the sandboxes of two peers.

    python tests/scale/bench_sandboxes.py [--quick] [--rounds N] [--open N …] [--only NAME …]

Each contender is a separate process. A peer has its own interpreter:

- none: the program as a subprocess of asyncio
- embedded and service: gymmesh's sandbox service in the caller's process, as an environment uses
  it, and as a separate service over gRPC
- verifiers and Harbor: their runtimes for the local machine, a subprocess and Podman containers. A
  peer that is not installed is printed as ABSENT. `make bench-peers` installs the peers. Harbor's
  containers need the image of `make test-sandboxes`

The bench measures sandboxes that are created, run /bin/true once and end. It also measures
/bin/true in one of N open sandboxes, one program at a time and N at a time, and the memory of an
open sandbox in which no program runs. Contenders take turns in each round, so that changes of the
machine's speed affect all of them. CPU is the user and system time of all processes of a
contender, including its sandboxes. Ratios and differences compare figures of the same round. The
bench prints medians of the rounds. Without `--quick` and `--only`, the bench writes its section of
docs/reference/performance.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.scale.report import machine, table, write_section
from tests.scale.rollout_bench.contender import ROOT, Contender, ContenderFailed

_PACKAGE: Final = "tests.scale.sandbox_bench"
_PEERS: Final = ROOT / ".cache" / "bench"
NONE: Final = "none"
OURS: Final = ("embedded", "service")
PEERS: Final = ("verifiers", "harbor")
NAMES: Final = (NONE, *OURS, *PEERS)
_TITLES: Final = {
    NONE: "no sandbox",
    "embedded": "sandbox service in the caller's process",
    "service": "sandbox service over gRPC",
    "verifiers": "verifiers {}, subprocess",
    "harbor": "Harbor {}, Podman",
}
#: The aims: sandboxes for each second of CPU, and the milliseconds that a program may take longer
#: in a sandbox, one at a time.
STARTS_A_SECOND: Final = 50.0
ADDED_MS: Final = 3.0
_STARTS: Final = {False: 60, True: 160}  # of a round: one at a time, and as many as processors
_RUNS: Final = 200
#: Where a sandbox takes seconds: so many at most in a round, and in one open sandbox alone.
_FEW: Final = {"harbor": 3}
_MOST_AT_A_TIME: Final = 256


@dataclass(frozen=True, slots=True)
class Taken:
    """What was taken in one round.

    Attributes:
        ms: of each sandbox or program.
        cpu_ms: for each.
        per_s: how many there were in a second.
    """

    ms: Sequence[float]
    cpu_ms: float
    per_s: float

    @property
    def p50(self) -> float:
        """The median."""
        return statistics.median(self.ms)


@dataclass(slots=True)
class Found:
    """What was measured of one contender.

    Attributes:
        starts: by whether several were made at a time.
        runs: by the number of open sandboxes, and whether all ran at a time.
        idle_mb: of one open sandbox.
        absent: why nothing was measured.
    """

    starts: dict[bool, list[Taken]] = field(default_factory=lambda: defaultdict(list))
    runs: dict[tuple[int, bool], list[Taken]] = field(default_factory=lambda: defaultdict(list))
    idle_mb: float = 0.0
    absent: str = ""
    version: str = ""


def command(name: str) -> list[str]:
    """The command line of a contender."""
    if name in PEERS:
        return [str(_PEERS / name / "bin" / "python"), "-m", f"{_PACKAGE}.peer_{name}"]
    if name == NONE:
        return [sys.executable, "-m", f"{_PACKAGE}.direct"]
    return [sys.executable, "-m", f"{_PACKAGE}.ours", name]


def start(name: str, stack: ExitStack, found: Found) -> Contender | None:
    """Starts a contender; a peer that can't be started is absent, and says why."""
    line = command(name)
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
    found.version = contender.version
    return contender


def take(contender: Contender, do: str, count: int, at_a_time: int) -> Taken:
    """Has a contender do something so often."""
    before = contender.cpu_s
    answer = contender.order({"do": do, "count": count, "at_a_time": at_a_time})
    cpu_ms = (contender.cpu_s - before) / count * 1e3
    return Taken(answer["ms"], cpu_ms, count / answer["wall_s"])


def measure(
    names: Sequence[str], numbers: Sequence[int], rounds: int, share: float
) -> dict[str, Found]:
    """All contenders, in turns. `share`: of the usual sandboxes and programs."""
    found = {name: Found() for name in names}
    processors = os.cpu_count() or 1
    with ExitStack() as stack:
        running = {
            name: contender
            for name in names
            if (contender := start(name, stack, found[name])) is not None
        }
        for several, count in _STARTS.items():
            for number in range(rounds + 1):
                for name, contender in list(running.items()):
                    at_a_time = processors if several and name not in _FEW else 1
                    most = min(_FEW.get(name, count), max(at_a_time, int(count * share)))
                    try:
                        taken = take(contender, "starts", most, at_a_time)
                    except ContenderFailed as error:
                        if name not in PEERS:
                            raise
                        found[name].absent = str(error)
                        del running[name]
                        continue
                    if number:  # the first warms up
                        found[name].starts[several].append(taken)
        for opened in numbers:
            some = {name: one for name, one in running.items() if opened == 1 or name not in _FEW}
            _measure_runs(some, found, opened, rounds, max(10, int(_RUNS * share)))
    return found


def _measure_runs(
    running: dict[str, Contender], found: dict[str, Found], opened: int, rounds: int, count: int
) -> None:
    for name, contender in running.items():
        before = contender.family_mb
        contender.order({"do": "hold", "count": opened})
        found[name].idle_mb = (contender.family_mb - before) / opened
    for number in range(rounds + 1):
        for name, contender in running.items():
            for together in (False, True):
                at_a_time = min(opened, _MOST_AT_A_TIME) if together else 1
                most = min(10 * _FEW[name], count) if name in _FEW else max(count, at_a_time)
                taken = take(contender, "runs", most, at_a_time)
                if number:
                    found[name].runs[opened, together].append(taken)
    for contender in running.values():
        contender.order({"do": "hold", "count": 0})


def added_ms(of: Found, none: Found, opened: int) -> float:
    """The median over the rounds of what a program takes longer, one at a time."""
    pairs = zip(of.runs[opened, False], none.runs[opened, False], strict=True)
    return statistics.median(one.p50 - other.p50 for one, other in pairs)


def _median(taken: Sequence[Taken], figure: Callable[[Taken], float]) -> float:
    return statistics.median(map(figure, taken))


def _latencies(taken: Sequence[Taken]) -> str:
    every = sorted(ms for one in taken for ms in one.ms)
    return f"{statistics.median(every):.1f} / {every[int(0.99 * (len(every) - 1))]:.1f}"


def _title(name: str, one: Found) -> str:
    return _TITLES[name].format(one.version).replace(" ,", ",")


def report(found: dict[str, Found]) -> str:
    """The section of the page."""
    there = {name: one for name, one in found.items() if not one.absent}
    numbers = sorted({opened for one in there.values() for opened, _ in one.runs})
    heads = [_title(name, one) for name, one in there.items()]
    starts = [
        [
            _title(name, one),
            _latencies(one.starts[False]),
            f"{_median(one.starts[False], lambda taken: taken.cpu_ms):.1f}",
            f"{1e3 / _median(one.starts[False], lambda taken: taken.cpu_ms):.0f}",
            f"{_median(one.starts[True], lambda taken: taken.per_s):.0f}",
        ]
        for name, one in there.items()
    ]
    alone = [
        [str(opened), *(_run(one, there.get(NONE), opened) for one in there.values())]
        for opened in numbers
    ]
    together = [
        [str(opened), *(_together(one, opened) for one in there.values())] for opened in numbers
    ]
    start_heads = [
        "contender",
        "time per sandbox, one sandbox at a time, p50 / p99, ms",
        "CPU per sandbox, ms",
        "sandboxes per second of CPU",
        f"sandboxes per second, {os.cpu_count()} at a time",
    ]
    memory = [[_title(name, one), f"{one.idle_mb:.2f}"] for name, one in there.items()]
    absent = [f"{_title(name, one)}: ABSENT ({one.absent})." for name, one in found.items()
              if one.absent]  # fmt: skip
    return "\n\n".join(
        [
            "The cost to create a sandbox, run `/bin/true` in the sandbox and end the sandbox:",
            table(start_heads, starts),
            "The time of `/bin/true` in one of several open sandboxes, one program at a time, in "
            "ms (p50 / p99). Brackets have the difference between this p50 and the p50 without a "
            "sandbox, in ms:",
            table(["number of open sandboxes", *heads], alone),
            "All open sandboxes run `/bin/true` at the same time. The figures are programs per "
            "second. Brackets have the CPU of one program in ms:",
            table(["number of open sandboxes", *heads], together),
            "Memory (PSS) of an open sandbox in which no program runs. The figure is the memory "
            f"of all {numbers[-1]} sandboxes, divided by {numbers[-1]}. For Harbor, the figure is "
            "from 1 sandbox:",
            table(["contender", "memory per sandbox, MB"], memory),
            *absent,
            machine(),
        ]
    )


def _together(one: Found, opened: int) -> str:
    if not (taken := one.runs[opened, True]):
        return "–"
    per_s, cpu_ms = _median(taken, lambda one: one.per_s), _median(taken, lambda one: one.cpu_ms)
    return f"{per_s:.0f} ({cpu_ms:.1f})"


def _run(one: Found, none: Found | None, opened: int) -> str:
    if not one.runs[opened, False]:
        return "–"
    shown = _latencies(one.runs[opened, False])
    if none is None or one is none:
        return shown
    return f"{shown} ({added_ms(one, none, opened):+.1f})"


def misses(found: dict[str, Found]) -> list[str]:
    """One sentence for each aim that was measured and not reached."""
    lines = []
    for name in OURS:
        one, none = found.get(name), found.get(NONE)
        if one is None:
            continue
        per_s = 1e3 / _median(one.starts[False], lambda taken: taken.cpu_ms)
        if per_s < STARTS_A_SECOND:
            lines.append(f"{name}: {per_s:.0f} sandboxes per second of CPU, target at least "
                         f"{STARTS_A_SECOND:.0f}")  # fmt: skip
        for opened in sorted({number for number, _ in one.runs} if none is not None else ()):
            assert none is not None
            if (added := added_ms(one, none, opened)) > ADDED_MS:
                lines.append(f"{name}, {opened} open sandboxes: a program takes {added:.1f} ms "
                             "more than without a sandbox, target at most "
                             f"{ADDED_MS:.0f} ms")  # fmt: skip
    return lines


def main() -> int:
    """Prints the figures and writes the section."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="do a tenth of the work, and don't write the page"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default: 5)")
    parser.add_argument(
        "--open",
        type=int,
        nargs="+",
        default=[1, 64, 256],
        dest="opened",
        help="numbers of open sandboxes (default: 1 64 256)",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=NAMES,
        default=NAMES,
        help="measure only these contenders, and don't write the page",
    )
    arguments = parser.parse_args()
    rounds, share = (1, 0.1) if arguments.quick else (arguments.rounds, 1.0)
    names = [name for name in NAMES if name in arguments.only]
    found = measure(names, arguments.opened, rounds, share)
    text = report(found)
    print(f"\n{text}\n")
    missed = misses(found)
    for line in missed:
        print(f"target missed: {line}")
    if not arguments.quick and len(names) == len(NAMES):
        write_section("make bench-sandboxes", text)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
