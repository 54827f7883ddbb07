"""`gym-cli collect` whose rows are tampered with: a collector with one defect.

python -m tests.conformance.tampering_collector DEFECT AGENT INPUT OUTPUT FAILURES
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]


def _twice(rows: Rows, failures: Rows) -> tuple[Rows, Rows]:
    return rows * 2, failures


def _lossy(rows: Rows, failures: Rows) -> tuple[Rows, Rows]:
    return rows[:-1], failures


def _zero_for_none(rows: Rows, failures: Rows) -> tuple[Rows, Rows]:
    return [{**row, "reward": row["reward"] or 0.0} for row in rows], failures


def _zero_for_failed(rows: Rows, failures: Rows) -> tuple[Rows, Rows]:
    return [*rows, *({**row, "reward": 0.0} for row in failures)], []


def _always_one(rows: Rows, failures: Rows) -> tuple[Rows, Rows]:
    return [{**row, "reward": 1.0} for row in rows], failures


DEFECTS: dict[str, Callable[[Rows, Rows], tuple[Rows, Rows]]] = {
    "twice": _twice,
    "lossy": _lossy,
    "zero_for_none": _zero_for_none,
    "zero_for_failed": _zero_for_failed,
    "always_one": _always_one,
}


def main(defect: str, agent: str, tasks: str, output: str, failures: str) -> int:
    """Collects, and spoils what was written; returns the exit code."""
    command = [sys.executable, "-m", "gymmesh_cli", "collect", "--agent", agent]
    attempts = ["--max-attempts", "1"] if defect == "no_retries" else []
    code = subprocess.run(
        [*command, "--input", tasks, "--output", output, *attempts], check=False
    ).returncode
    if defect in DEFECTS:
        good, bad = DEFECTS[defect](_read(output), _read(failures))
        _write(output, good)
        _write(failures, bad)
    return code


def _read(path: str) -> Rows:
    if not Path(path).exists():
        return []
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def _write(path: str, rows: Rows) -> None:
    Path(path).write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
