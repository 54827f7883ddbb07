"""tools/setup-bridges.sh and `make test-bridges`: which bridges there are, and what each needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
_SCRIPT = "tools/setup-bridges.sh"


def test_every_bridge_is_tested_where_none_is_named() -> None:
    # Where `make` runs the tests, its own variables would come along.
    ours = {"BRIDGES", "MAKEFLAGS", "MFLAGS", "MAKELEVEL"}
    environment = {key: value for key, value in os.environ.items() if key not in ours}
    printed = subprocess.run(
        ["make", "-n", "test-bridges"],
        cwd=_ROOT,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    (line,) = (one for one in printed.splitlines() if "for name in" in one)
    named = line.partition("for name in ")[2].partition(";")[0].split()
    folders = {
        one.name for one in (_ROOT / "tests/bridges").iterdir() if (one / "__init__.py").is_file()
    }
    assert set(named) == folders
    assert len(named) == len(folders)
    for name in named:
        assert (_ROOT / f"tools/bridges/{_environment(name)}.lock.txt").is_file(), (
            "--lock NAME writes it"
        )


def _environment(name: str) -> str:
    """The bridge whose environment this one uses: its own unless it names another."""
    words = (_ROOT / f"tools/bridges/{name}.txt").read_text()
    found = re.search(r"^# environment: (.+)$", words, re.MULTILINE)
    return found[1] if found else name


def test_a_missing_interpreter_is_named_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "tools/bridges").mkdir(parents=True)
    shutil.copy(_ROOT / _SCRIPT, tmp_path / _SCRIPT)
    (tmp_path / "tools/bridges/near.txt").write_text("# python: 3.11\n")
    (tmp_path / "tools/bridges/far.txt").write_text("# python: 3.99\n")
    ended = subprocess.run(
        [tmp_path / _SCRIPT, "near", "far"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert not ended.stdout
    assert ended.stderr.strip() == (
        "setup-bridges: the bridge far needs Python 3.99, which was not found. "
        "Install Python 3.99, or set PYTHON_3_99=/path/to/python3.99"
    )
    assert not (tmp_path / ".cache").exists()
