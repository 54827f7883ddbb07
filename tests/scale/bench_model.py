"""Measures the CPU cost of a model call, as a ratio to a call with bare aiohttp in the same run.

The bench sends the same requests to one fake chat endpoint in a separate process, with 64 calls in
flight, in three ways: with aiohttp and orjson, with the client of the package `openai`, and
through the model service with the backends `chat` and `vllm` (direct calls in one process). Each
way runs in a separate process. The ways alternate in each round, so that changes of the machine's
speed affect all of them.

    python tests/scale/bench_model.py [--calls N] [--rounds N] [--concurrency N] [--loop uvloop]

Prints the CPU microseconds per call (user and system time of only the calling process) and the
ratio, as a table for docs/reference/performance.md. The figures are medians of the rounds. Exits 1
if a ratio of the service is above the target.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
TARGET: Final = 1.6
CASES: Final = ("1 KB", "10 KB", "8,000 tokens")
# The slower way of a case makes a smaller number of calls.
SHARES: Final = {"8,000 tokens": 0.1}
WAYS: Final = {"bare": 1.0, "openai": 0.1, "chat": 1.0, "vllm": 1.0}
# Tokens are captured with vLLM; `chat` would keep them as JSON in the answer.
LEFT_OUT: Final = frozenset((("8,000 tokens", "chat"),))
_PACKAGE: Final = "tests.scale.model_bench"
_RUN_S: Final = 600
_FEWEST: Final = 100


@contextmanager
def endpoint() -> Iterator[str]:
    """The fake endpoint's URL, while it runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"{_PACKAGE}.endpoint"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.stdin.close()
        process.wait(timeout=30)


def measure(way: str, case: str, url: str, calls: int, concurrency: int, loop: str) -> float:
    """CPU microseconds per call of one way, run in a process of its own."""
    count = max(_FEWEST, int(calls * WAYS[way] * SHARES.get(case, 1.0)))
    command = [sys.executable, "-m", f"{_PACKAGE}.clients", way, case, url, str(count)]
    run = subprocess.run(
        [*command, str(concurrency), loop],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=_RUN_S,
        check=True,
    )
    return float(run.stdout)


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--calls", type=int, default=4000, help="calls per round with bare aiohttp (default: 4000)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default: 5)")
    parser.add_argument("--concurrency", type=int, default=64, help="calls in flight (default: 64)")
    parser.add_argument(
        "--loop", choices=["uvloop", "asyncio"], default="uvloop", help="default: uvloop"
    )
    given = parser.parse_args()
    met = True
    print(f"{given.concurrency} in flight, {given.loop}, medians of {given.rounds} rounds\n")
    print(
        "| prompt or answer | client | CPU per call, µs | ratio to bare aiohttp (median) | "
        "ratio in the rounds |\n|---|---|---|---|---|"
    )
    with endpoint() as url:
        for case in CASES:
            ways = [way for way in WAYS if (case, way) not in LEFT_OUT]
            rounds = [
                {
                    way: measure(way, case, url, given.calls, given.concurrency, given.loop)
                    for way in ways
                }
                for _ in range(given.rounds)
            ]
            for way in ways:
                ratios = [one[way] / one["bare"] for one in rounds]
                cost = statistics.median(one[way] for one in rounds)
                ratio = statistics.median(ratios)
                spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
                print(f"| {case} | {way} | {cost:,.0f} | {ratio:.2f} | {spread} |", flush=True)
                met = met and (way in ("bare", "openai") or ratio <= TARGET)
    print(
        f"\ntarget for chat and vllm, a ratio of at most {TARGET:g}: {'met' if met else 'MISSED'}"
    )
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
