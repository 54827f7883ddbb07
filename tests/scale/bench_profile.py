"""Measures the memory of gym-cli profile and gym-cli reverify with many rows.

    python tests/scale/bench_profile.py [--rows N] [--reverify]

Writes a file of N rows with eight repeats per task. Then the bench profiles the first tenth of the
rows, and all rows, each in a separate process. The bench prints the peak memory, and the memory of
each additional row. With --reverify, gym-cli reverify scores the rows again by string match, and
writes the rows with their new verdicts.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any, Final

import orjson

from gymmesh_data.profile import ProfileOptions, profile

_REPEATS: Final = 8


def _row(number: int) -> dict[str, Any]:
    task, repeat = divmod(number, _REPEATS)
    text = {"type": "output_text", "text": f"It is {number}.", "annotations": []}
    started = 1.7e9 + number / 100
    return {
        "responses_create_params": {"input": f"Task {task}"},
        "response": {
            "output": [{"type": "message", "role": "assistant", "content": [text]}],
            "usage": {"input_tokens": 100, "output_tokens": number % 5000},
        },
        "reward": float(number % 3 == 0),
        "expected_answer": f"It is {number}.",
        "extraction_mode": "full_response",
        "task_id": f"task-{task}",
        "rollout_id": f"ro-{number}",
        "repeat_index": repeat,
        "environment": "sums",
        "stop_reason": "MODEL_FINISHED",
        "metadata": {"steps_taken": 1, "timings": {"started_at": started, "duration_us": number}},
    }


def _measure(path: Path) -> None:
    made = profile([path], ProfileOptions(resamples=200))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(made.totals.completed, most)


def _measure_reverify(path: Path) -> None:
    from gymmesh_cli.main import cli

    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "judged.jsonl"
        command = ["reverify", str(path), "--output", str(output), "--json"]
        command += ["--set", "environments.sums.use=string_match"]
        with redirect_stdout(StringIO()), suppress(SystemExit):
            cli.main(command, standalone_mode=False)
        with output.open("rb") as judged:
            rows = sum(1 for _ in judged)
    print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main() -> None:
    """Runs the bench."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows (default: 1000000)")
    parser.add_argument(
        "--reverify", action="store_true", help="measure gym-cli reverify, not gym-cli profile"
    )
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        (_measure_reverify if chosen.reverify else _measure)(chosen.measure)
        return
    found: list[tuple[int, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        for rows in (chosen.rows // 10, chosen.rows):
            with path.open("wb") as out:
                for number in range(rows):
                    out.write(orjson.dumps(_row(number)) + b"\n")
            command = [sys.executable, __file__, "--measure", str(path)]
            command += ["--reverify"] if chosen.reverify else []
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            read, most = said.split()
            found.append((int(read), float(most)))
            print(
                f"{int(read):,} rows, {path.stat().st_size / 1e6:.0f} MB on disk: peak memory "
                f"{float(most):.0f} MB"
            )
    (few, small), (many, large) = found
    print(f"memory of each additional row: {(large - small) * 2**20 / (many - few):.0f} bytes")


if __name__ == "__main__":
    main()
