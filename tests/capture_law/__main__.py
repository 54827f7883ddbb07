"""Holds the tree of captured calls against random programs: `make capture-law`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.capture_law.program import Tally, run_sessions

_PIECE = 250


def main() -> int:
    """Run sessions on all processors; 0 when the tree was never wrong."""
    parser = argparse.ArgumentParser(prog="make capture-law")
    parser.add_argument("--sessions", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=14, help="of each session")
    parser.add_argument("--seed", default="law")
    parser.add_argument("--processes", type=int)
    asked = parser.parse_args()
    began, links, sessions = time.monotonic(), Counter[str](), 0
    with ProcessPoolExecutor(asked.processes) as pool:
        pieces = [
            pool.submit(run_sessions, f"{asked.seed}/{start}", _PIECE, asked.steps)
            for start in range(0, asked.sessions, _PIECE)
        ]
        for piece in pieces:
            tally: Tally = piece.result()
            sessions += tally.sessions
            links += tally.links
    calls = links.total()
    shares = ", ".join(f"{links[name] / calls:.1%} {name}" for name in sorted(links))
    print(f"{sessions} sessions, {calls} calls, none in a wrong place: {shares}")
    print(f"{time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
