"""Measures the CPU and memory of exports, and of hand-written loops over the same rows.

    python tests/scale/bench_export.py [--rows N] [--only NAME,…] [--folder DIR] [--write]

Writes a file of rows with three tool calls each and eight repeats per task. Then the bench measures
each format in a separate process: CPU seconds, MB of input per second of CPU, and the highest
memory. For comparison, the bench measures two loops: one reads each row and writes it unchanged.
The other, right before the export, writes the same output as the export, by hand and without checks
(export_loops.py). `--folder` is the folder of the rows. `--write` writes the table to
docs/reference/performance.md.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gymmesh_data import ExportOptions, Selection, export
from tests.scale.export_loops import LOOPS
from tests.scale.report import machine, table, write_section

_REPEATS: Final = 8
_COPY: Final = "copy"
CASES: Final = {
    "messages": ExportOptions(),
    "sft": ExportOptions(Selection(min_reward=1.0, distinct=True)),
    "tokens": ExportOptions(),
    "dpo": ExportOptions(),
    "parquet": ExportOptions(),
}
"""The formats that are measured, with their options."""


def row_of(number: int) -> dict[str, Any]:
    """A row as gym-cli collect writes it."""
    held = list(range(64))
    output: list[dict[str, Any]] = []
    for step in range(3):
        sampled = [number % 1000 + one for one in range(32)]
        thought = {"type": "reasoning_text", "text": "First the larger one, then the rest. " * 6}
        output += [
            {"type": "reasoning", "id": f"rs_{step}", "summary": [], "content": [thought]},
            {
                "type": "function_call",
                "name": "add",
                "arguments": f'{{"left": {number}, "right": {step}}}',
                "call_id": f"call_{step}",
                "prompt_token_ids": held,
                "generation_token_ids": sampled,
                "generation_log_probs": [-0.25] * 32,
            },
            {"type": "function_call_output", "call_id": f"call_{step}", "output": "42 " * 40},
        ]
        held = [*held, *sampled, *range(16)]
    text = {"type": "output_text", "text": f"It is {number}. " * 10, "annotations": []}
    output.append({"type": "message", "role": "assistant", "content": [text]})
    task, repeat = divmod(number, _REPEATS)
    tool = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": True}
    prompt = {"role": "user", "content": f"Task {task}. " + "What is the sum of these? " * 10}
    return {
        "responses_create_params": {"input": [prompt], "tools": [tool]},
        "response": {"id": f"resp_{number}", "output": output},
        "reward": float(number % 3 == 0),
        "task_id": f"task-{task}",
        "rollout_id": f"ro-{number}",
        "repeat_index": repeat,
        "environment": "sums",
        "stop_reason": "MODEL_FINISHED",
        "metadata": {"steps_taken": 4, "tools_used": ["add"]},
    }


@dataclass(frozen=True, slots=True)
class _Cost:
    """CPU seconds, the most MB of memory, and the records that were written."""

    cpu_s: float
    memory: float
    records: int


def _measure(kind: str, name: str, source: Path) -> None:
    """In a process of its own: prints what it cost."""
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:
        target = Path(folder) / "out"
        began, records = time.process_time(), 0
        if kind == "loop":
            LOOPS[name](source, target)
        else:
            records = export([source], target, name, CASES[name]).records
        used = time.process_time() - began
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(used, most, records)


def _measured(kind: str, name: str, source: Path) -> _Cost:
    command = [sys.executable, __file__, "--measure", kind, name, str(source)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    cost = _Cost(float(said[0]), float(said[1]), int(said[2]))
    print(f"{kind} {name}: {cost.cpu_s:.1f} s of CPU, {cost.memory:.0f} MB", flush=True)
    return cost


def _lines(names: list[str], source: Path) -> list[list[str]]:
    """The lines of the table."""
    megabytes, copied = source.stat().st_size / 1e6, _measured("loop", _COPY, source)
    lines = [[_COPY, "", f"{megabytes / copied.cpu_s:.0f}", "1.0 ×", "", f"{copied.memory:.0f}"]]
    for name in names:
        by_hand, cost = (_measured(kind, name, source) for kind in ("loop", "export"))
        lines.append(
            [
                name,
                f"{cost.records:,}",
                f"{megabytes / cost.cpu_s:.0f}",
                f"{cost.cpu_s / copied.cpu_s:.1f} ×",
                f"{cost.cpu_s / by_hand.cpu_s:.1f} ×",
                f"{cost.memory:.0f} (by hand {by_hand.memory:,.0f})",
            ]
        )
    return lines


def main() -> None:
    """Runs the bench."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--rows", type=int, default=100_000, help="rows of the input (default: 100000)"
    )
    parser.add_argument(
        "--only",
        default=",".join(CASES),
        metavar="FORMAT[,FORMAT...]",
        help="export only to these formats (default: %(default)s)",
    )
    parser.add_argument(
        "--folder", type=Path, help="folder for the input and the outputs (default: /tmp)"
    )
    parser.add_argument(
        "--write", action="store_true", help="write the figures to docs/reference/performance.md"
    )
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        kind, name, source = chosen.measure
        _measure(kind, name, Path(source))
        return
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        rows = Path(folder) / "rows.jsonl"
        with rows.open("wb") as out:
            for number in range(chosen.rows):
                out.write(orjson.dumps(row_of(number)) + b"\n")
        megabytes = rows.stat().st_size / 1e6
        lines = _lines(chosen.only.split(","), rows)
    head = ["export format", "records written", "MB of input per second of CPU"]
    head += ["CPU / CPU of the loop *copying*", "CPU / CPU of the loop *by hand*"]
    head += ["highest memory, MB"]
    text = (
        f"The input has {chosen.rows:,} rows ({megabytes:,.0f} MB). Brackets have the memory of "
        f"the loop *by hand*:\n\n{table(head, lines)}\n\n{machine()}"
    )
    print(text)
    if chosen.write:
        write_section("make bench-export", text)


if __name__ == "__main__":
    main()
