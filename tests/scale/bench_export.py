"""What an export costs next to a plain loop of orjson over the same rows, and how memory grows.

    python tests/scale/bench_export.py [--rows N] [--write]

Makes a file of rows of three tool calls each, with eight repeats a task, then measures each format
in a process of its own: CPU seconds, the input's MB a second of CPU, times the plain loop, which
reads and writes each row once, and the most memory. `--write` puts it into docs/performance.md.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gymmesh_data import ExportOptions, Selection, export
from tests.scale.report import machine, table, write_section

_REPEATS: Final = 8
_LOOP: Final = "plain orjson loop"
_CASES: Final = {
    "messages": ("messages", ExportOptions()),
    "sft": ("sft", ExportOptions(Selection(min_reward=1.0, distinct=True))),
    "tokens": ("tokens", ExportOptions()),
    "dpo": ("dpo", ExportOptions()),
    "messages, best 2": ("messages", ExportOptions(Selection(per_task=2))),
}


def _row(number: int) -> dict[str, Any]:
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


def _plain_loop(source: Path, target: Path) -> None:
    with source.open("rb") as rows, target.open("wb") as out:
        for line in rows:
            out.write(orjson.dumps(orjson.loads(line), option=orjson.OPT_APPEND_NEWLINE))


def _measure(case: str, source: Path) -> None:
    """In a process of its own: prints CPU seconds, the most MB of memory, and the records."""
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:
        target = Path(folder) / "out.jsonl"
        began, records = time.process_time(), 0
        if case == _LOOP:
            _plain_loop(source, target)
        else:
            name, options = _CASES[case]
            records = export([source], target, name, options).records
        used = time.process_time() - began
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(used, most, records)


def main() -> None:
    """Runs the bench."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        _measure(chosen.measure[0], Path(chosen.measure[1]))
        return
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "rows.jsonl"
        with source.open("wb") as out:
            for number in range(chosen.rows):
                out.write(orjson.dumps(_row(number)) + b"\n")
        megabytes, loop_s = source.stat().st_size / 1e6, 0.0
        for case in (_LOOP, *_CASES):
            command = [sys.executable, __file__, "--measure", case, str(source)]
            said = subprocess.run(
                command, check=True, capture_output=True, text=True
            ).stdout.split()
            used, most, records = float(said[0]), float(said[1]), int(said[2])
            loop_s = loop_s or used
            speed, ratio = f"{megabytes / used:.0f}", f"{used / loop_s:.1f} ×"
            rows.append([case, f"{records:,}", speed, ratio, f"{most:.0f}"])
            print("  ".join(rows[-1]), flush=True)
    head = ["export", "records", "MB of input a second of CPU", "CPU", "memory, MB"]
    text = f"{chosen.rows:,} rows, {megabytes:,.0f} MB:\n\n{table(head, rows)}\n\n{machine()}"
    if chosen.write:
        write_section("make bench-export", text)


if __name__ == "__main__":
    main()
