"""Measures the cost of the gateway: captured calls, programs in sandboxes, and a long session.

    python tests/scale/bench_gateway.py [--quick] [--rounds N] [--layout NAME]
                                        [--part calls|programs|session …]

- calls: the time that the gateway adds to a call of 1, 64 and 256 programs, compared with calls to
  the same scripted model server without a gateway, and the CPU of a call. The calls use the APIs
  Chat Completions and Messages, streamed and in one piece. If verifiers is installed (`make
  bench-peers`), the bench also measures calls through its interception server.
- programs: 256 small programs, 32 of Codex and 24 of Claude Code run in sandboxes at the same
  time, if these programs are installed (`make test-programs`): memory, CPU and start. A program
  that fails is an error.
- session: bytes and CPU of the row, the page and the exports of 125, 250 and 500 calls.

CPU is the user and system time of all processes of a contender. The model server and the simulated
programs are separate processes, which are not counted. Without options, the bench writes its
section of docs/reference/performance.md. `--quick` does less work in every part.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.scale.gateway_bench import calls, programs, session
from tests.scale.report import machine, write_section

PARTS: Final = ("calls", "programs", "session")


def main() -> int:
    """Prints the figures and writes the section."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="do less work, and don't write the page"
    )
    parser.add_argument(
        "--rounds", type=int, default=1, help="rounds of the part 'calls' (default: 1)"
    )
    parser.add_argument(
        "--layout",
        choices=calls.LAYOUTS,
        default="cell",
        help="gymmesh's layout in the part 'calls' (default: cell)",
    )
    parser.add_argument(
        "--part", nargs="+", choices=PARTS, default=PARTS, help="run only these parts"
    )
    parser.add_argument(
        "--programs",
        type=int,
        nargs="+",
        choices=calls.PACES,
        help="numbers of programs in the part 'calls'",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=programs.AT_ONCE,
        default=programs.AT_ONCE,
        help="programs in the part 'programs'",
    )
    given = parser.parse_args()
    texts: list[str] = []
    missed: list[str] = []
    if "calls" in given.part:
        at = calls.QUICK if given.quick else calls.points(tuple(calls.PACES), calls.KINDS)
        at = [point for point in at if not given.programs or point[2] in given.programs]
        measured = calls.measure((calls.BARE, given.layout, calls.VERIFIERS), at, given.rounds)
        texts.append(calls.report(measured, at))
        missed += calls.misses(measured, at)
    if "programs" in given.part:
        numbers = {kind: programs.AT_ONCE[kind] for kind in given.only}
        ran = programs.measure(programs.quick(numbers) if given.quick else numbers)
        texts.append(programs.report(ran))
    if "session" in given.part:
        sessions = {count: session.measure(count) for count in session.CALLS}
        texts.append(session.report(sessions))
        missed += session.misses(sessions)
    texts.append(machine())
    text = "\n\n".join(texts)
    print(f"\n{text}\n")
    for line in missed:
        print(f"target missed: {line}")
    if len(sys.argv) == 1:
        write_section("make bench-gateway", text)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
