"""`make test-all` runs every test target there is and prints one table."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
_MAKE = """#!/bin/sh
echo "== 3 passed, 1 skipped in 2.1s =="
echo "test result: 7 passed in another language"
if [ "$1" = test-handoff ]; then echo "1 failed, 2 passed in 61.20s (0:01:01)"; fi
[ "$1" != test-view ]
"""


def test_all_targets_run_and_a_failure_keeps_none_from_running(tmp_path: Path) -> None:
    make = tmp_path / "make"
    make.write_text(_MAKE)
    make.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        [_ROOT / "tools/test-all.sh"],
        env=os.environ | {"PATH": path, "LOGS": str(tmp_path / "logs")},
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
    said = {row[0]: " ".join(row[4:]) for row in rows}
    both = "3 passed, 1 skipped in 2.1s; 1 failed, 2 passed in 61.20s (0:01:01)"
    assert said.pop("test-handoff") == both, "each run of pytest has its line"
    assert set(said.values()) == {"3 passed, 1 skipped in 2.1s"}
    assert {path.stem for path in (tmp_path / "logs").iterdir()} == set(said) | {"test-handoff"}
