"""`make test-all` runs every test target there is and prints one table."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
_MAKE = """#!/bin/sh
echo "== 3 passed, 1 skipped in 2.1s =="
[ "$1" != test-view ]
"""


def test_all_targets_run_and_a_failure_keeps_none_from_running(tmp_path: Path) -> None:
    make = tmp_path / "make"
    make.write_text(_MAKE)
    make.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        [_ROOT / "tools/test-all.sh"],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1
    head, *rows = [line.split() for line in ended.stdout.splitlines()]
    assert head == ["target", "result", "time", "tests"]
    makefile = (_ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^(test[a-z-]*):", makefile, re.MULTILINE)) - {"test-all"}
    assert len(targets) > 10
    assert [row[0] for row in rows] == ["check", *sorted(targets)]
    assert {row[0] for row in rows if row[1] != "passed"} == {"test-view"}
    assert all(row[4:6] == ["3", "passed,"] for row in rows)
