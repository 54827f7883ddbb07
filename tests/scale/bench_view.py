"""Measures gym-cli view on a large file: time to the first rows, the index, and each request.

    python tests/scale/bench_view.py [--rows N] [--row-bytes N] [--file PATH] [--write]

Writes a file of rows with three tool calls each and eight repeats per task, starts gym-cli view as
a process, and sends HTTP requests. The bench measures the seconds until the first rows appear and
until all rows are indexed, and then the milliseconds of each kind of request (the median and the
slowest). Each request has different values, so that no answer is from a cache. The bench also
prints the CPU time of the server, which other work on the machine hardly changes, and the server's
highest memory. `--file` is the file of the rows. If the file exists, the bench uses its rows.
`--write` writes the figures to docs/reference/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any, Final

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.scale.report import machine, table, write_section

_REPEATS: Final = 8
_ENVIRONMENTS: Final = ("sums", "shop", "code", "search")
_WORDS: Final = ("apple", "basket", "total", "street", "river", "answer", "seven", "market")


def _row(number: int, row_bytes: int) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    for step in range(3):
        thought = f"First the {_WORDS[(number + step) % 8]}, then the rest. " * 4
        output += [
            {"type": "reasoning", "summary": [], "content": [{"type": "text", "text": thought}]},
            {
                "type": "function_call",
                "name": ("add", "take", "look")[(number + step) % 3],
                "arguments": f'{{"left": {number}, "right": {step}}}',
                "call_id": f"call_{step}",
                "generation_token_ids": [number % 1000 + one for one in range(32)],
                "generation_log_probs": [-0.25] * 32,
            },
            {"type": "function_call_output", "call_id": f"call_{step}", "output": f"{number} ok"},
        ]
    part = {"type": "output_text", "text": f"It is {number}.", "annotations": []}
    output.append({"type": "message", "role": "assistant", "content": [part]})
    task, repeat = divmod(number, _REPEATS)
    made = {
        "responses_create_params": {"input": f"Task {task}. What is the sum of these?"},
        "response": {"output": output, "usage": {"output_tokens": number % 997}},
        "reward": number % 101 / 100,
        "task_id": f"task-{task}",
        "rollout_id": f"ro-{number}",
        "repeat_index": repeat,
        "environment": _ENVIRONMENTS[number % 4],
        "stop_reason": "MODEL_FINISHED" if number % 10 else "MAX_STEPS",
        "tags": {"level": ("easy", "hard")[number % 2]},
        "metadata": {"steps_taken": 4, "timings": {"duration_us": number * 7919 % 9_000_000}},
    }
    left = row_bytes - len(orjson.dumps(made))
    # What is left is prompt ids, as in real rows the most of what there is.
    ids = [10_000 + one % 40_000 for one in range(max(0, left - 20) // 6)]
    output[1]["prompt_token_ids"] = ids
    return made


class _Process:
    """What a process has used, as /proc says."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")

    def cpu_s(self) -> float:
        """Seconds of CPU time, in ticks of mostly 10 ms; of its threads and ended children too."""
        fields = (self._folder / "stat").read_text().rpartition(")")[2].split()
        ticks = sum(int(one) for one in fields[11:15])
        return ticks / os.sysconf("SC_CLK_TCK")

    def most_mb(self) -> float:
        """Resident memory at most so far, in MB."""
        found = re.search(r"VmHWM:\s+(\d+) kB", (self._folder / "status").read_text())
        return int(found[1]) * 1024 / 1e6 if found else 0.0


class _Page:
    """A browser's side: a cookie and the address."""

    def __init__(self, url: str) -> None:
        self._open = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(CookieJar())
        ).open
        self._base = url.partition("?")[0]
        self._open(url).read()

    def ask(self, path: str) -> Any:
        with self._open(self._base + "api/" + path) as response:
            return orjson.loads(response.read())


def _questions(rows: int) -> dict[str, Callable[[int], str]]:
    def near(number: int) -> int:
        return number * 7919 % rows

    return {
        "values that the filters offer": lambda _: "facets",
        "first page": lambda number: f"rollouts?offset={number}",
        "last page": lambda number: f"rollouts?offset={rows - 100 - number}",
        "filter by environment": lambda number: f"rollouts?environment={_ENVIRONMENTS[number % 4]}",
        "filter by environment, count the rows": lambda number: (
            f"count?environment={_ENVIRONMENTS[number % 4]}&max_reward=0.{99 - number}"
        ),
        "filter by stop reason, sort by task": lambda number: (
            f"rollouts?stop=MAX_STEPS&sort=task&offset={number}"
        ),
        "all rows, sort by reward": lambda number: f"rollouts?sort=-reward&offset={number}",
        "all rows, sort by tokens, last page": lambda number: (
            f"rollouts?sort=tokens&offset={rows - 100 - number}"
        ),
        "filter by reward, sort by duration": lambda number: (
            f"rollouts?min_reward=0.{number + 10}&max_reward=0.9&sort=-duration"
        ),
        "filter by reward, count the rows": lambda number: (
            f"count?min_reward=0.{number + 10}&max_reward=0.9"
        ),
        "filter by tag and tool, count the rows": lambda number: (
            f"count?tag=level%3Dhard&tool=add&min_turns={number % 4}&max_reward=0.{number + 10}"
        ),
        "filter failed rollouts (no row matches)": lambda number: (
            f"rollouts?outcome=failed&min_turns={number}"
        ),
        "search for a rare word": lambda number: f"rollouts?text={near(number)}%20",
        "search for a common word, sort by reward": lambda number: (
            f"rollouts?text={_WORDS[number % 8]}&sort=reward"
        ),
        "search for a common word, count the rows": lambda number: (
            f"count?text={_WORDS[number % 8]}%20&min_reward=0.{number + 10}"
        ),
        "one rollout": lambda number: f"rollout?key=ro-{near(number)}",
        "tokens of a model call": lambda number: f"tokens?key=ro-{near(number)}&call=1",
        "repeats of a task": lambda number: f"task?task=task-{near(number) // _REPEATS}",
        "overview": lambda number: f"overview?max_reward=0.{number + 10}",
    }


def _measure(page: _Page, viewer: _Process, rows: int, repeats: int) -> list[list[str]]:
    found: list[list[str]] = []
    for name, question in _questions(rows).items():
        took, used = [], viewer.cpu_s()
        for number in range(repeats):
            began = time.perf_counter()
            page.ask(question(number))
            took.append((time.perf_counter() - began) * 1000)
        cpu_ms = (viewer.cpu_s() - used) * 1000 / repeats
        found.append(
            [name, *(f"{one:.0f}" for one in (statistics.median(took), max(took), cpu_ms))]
        )
        print("  ".join(found[-1]), flush=True)
    return found


def main() -> None:
    """Runs the bench."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--rows", type=int, default=50_000, help="rows in the file (default: 50000)"
    )
    parser.add_argument(
        "--row-bytes", type=int, default=5_000, help="size of a row in bytes (default: 5000)"
    )
    parser.add_argument("--repeats", type=int, default=8, help="requests of each kind (default: 8)")
    parser.add_argument(
        "--file", type=Path, help="use the rows in this file; create the file if it is missing"
    )
    parser.add_argument(
        "--write", action="store_true", help="write the figures to docs/reference/performance.md"
    )
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = chosen.file or Path(folder) / "rows.jsonl"
        if not source.exists():
            with source.open("wb") as out:
                for number in range(chosen.rows):
                    out.write(orjson.dumps(_row(number, chosen.row_bytes)) + b"\n")
        text = _report(source, Path(folder), chosen.rows, chosen.repeats)
    print(text)
    if chosen.write:
        write_section("make bench-view", text)


def _report(source: Path, cache: Path, rows: int, repeats: int) -> str:
    command = [sys.executable, "-m", "gymmesh_cli", "view", str(source), "--no-browser"]
    environment = os.environ | {"GYMMESH_CACHE_DIR": str(cache), "PYTHONUNBUFFERED": "1"}
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            url = next(
                found[0] for line in process.stdout if (found := re.search(r"http://\S+", line))
            )
            page, viewer = _Page(url), _Process(process.pid)
            indexed = _until_indexed(page, viewer, source.stat().st_size, began)
            index = sum(one.stat().st_size for one in (cache / "view").iterdir())
            answers = _measure(page, viewer, rows, repeats)
            most = viewer.most_mb()
        finally:
            process.terminate()
    head = [
        "request",
        "median time, ms",
        "longest time, ms",
        "CPU of the server per request, ms",
    ]
    return (
        f"The file has {rows:,} rows and {source.stat().st_size / 1e6:,.0f} MB:\n\n{indexed}"
        f"- The index has {index / 1e6:,.0f} MB.\n"
        f"- The server's highest memory was {most:,.0f} MB, including all requests below.\n\n"
        f"{table(head, answers)}\n\n{machine()}"
    )


def _until_indexed(page: _Page, viewer: _Process, size: int, began: float) -> str:
    """Wait for the first rows and for the whole index, and ask for the table meanwhile."""
    while not page.ask("rollouts")["rows"]:
        time.sleep(0.02)
    first_s, first_cpu_s = time.perf_counter() - began, viewer.cpu_s()
    print(f"first rows after {first_s:.2f} s, {first_cpu_s:.2f} s of CPU", flush=True)
    meanwhile = []
    while (status := page.ask("status"))["state"] != "ready":
        asked = time.perf_counter()
        page.ask("rollouts")
        meanwhile.append((time.perf_counter() - asked) * 1000)
        time.sleep(1)
    indexed_s, cpu_s = time.perf_counter() - began, viewer.cpu_s()
    print(f"all indexed after {indexed_s:.1f} s, {cpu_s:.1f} s of CPU, {viewer.most_mb():.0f} MB")
    print(f"{json.dumps(status)[:200]}", flush=True)
    between = f"{statistics.median(meanwhile):.0f} ms" if meanwhile else "no time"
    return (
        f"- The first rows appear after {first_s:.1f} s ({first_cpu_s:.1f} s of CPU).\n"
        f"- The index of all rows is complete after {indexed_s:.0f} s ({cpu_s:.0f} s of CPU, "
        f"{size / 1e6 / cpu_s:.0f} MB per second of CPU).\n"
        "- Before the index is complete, the server returns a page of the table in "
        f"{between} (median).\n"
    )


if __name__ == "__main__":
    main()
