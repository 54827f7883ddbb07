"""Holds the tree of captured calls against random programs: `make capture-law`."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.capture_law.sessions import Tally, run_sessions

_PIECE = 250


def main() -> int:
    """Run sessions on all processors; 0 when the tree was never wrong."""
    parser = argparse.ArgumentParser(prog="make capture-law")
    parser.add_argument("--sessions", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=14, help="of each session")
    parser.add_argument("--seed", default="law")
    parser.add_argument("--processes", type=int)
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
    print(f"{tally.sessions} sessions, {len(tally.wrong)} of them with a call in a wrong place")
    print(f"{calls} calls: {shares}; {time.monotonic() - began:.0f} s")
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
