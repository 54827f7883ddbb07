"""Checks the tree of captured calls with random programs: `make capture-law`."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.capture_law.sessions import Tally, run_sessions

_PIECE = 250


def main() -> int:
    """Run sessions on all processors; 0 when the tree was never wrong."""
    parser = argparse.ArgumentParser(
        prog="make capture-law",
        description="Runs random programs through the gateway's tree of captured calls, and checks "
        "the position of each call.",
    )
    parser.add_argument(
        "--sessions",
        type=int,
        default=20_000,
        help="sessions, each with its own random program (default: 20000)",
    )
    parser.add_argument("--steps", type=int, default=14, help="steps in each session (default: 14)")
    parser.add_argument("--seed", default="law", help="seed of the programs (default: law)")
    parser.add_argument(
        "--processes", type=int, help="processes that run sessions (default: one per processor)"
    )
    asked = parser.parse_args()
    began, tally = time.monotonic(), Tally()
    with ProcessPoolExecutor(asked.processes) as pool:
        pieces = [
            pool.submit(run_sessions, f"{asked.seed}/{start}", _PIECE, asked.steps)
            for start in range(0, asked.sessions, _PIECE)
        ]
        for piece in pieces:
            tally.add(piece.result())
    calls = tally.links.total()
    shares = ", ".join(f"{count / calls:.1%} {link}" for link, count in sorted(tally.links.items()))
    for wrong in tally.wrong:
        print(f"{wrong}\n")
    print(
        f"{tally.sessions} sessions; sessions with a call at a wrong position: {len(tally.wrong)}"
    )
    print(f"{calls} calls: {shares}")
    print(f"time: {time.monotonic() - began:.0f} s")
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
