"""A process that may use little of its system says so in one sentence, instead of an abort."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from gymmesh_runtime.serving import limit_met

TASK = (
    '{"responses_create_params": {"input": "2 + 2?"}, "expected_answer": "4", '
    '"environment": "math"}\n'
)
ENDPOINT = ["--model-url", "http://127.0.0.1:9/v1", "--model", "m"]
COMMANDS = [
    ["collect", "--input", "tasks.jsonl", "--output", "out.jsonl",
     *ENDPOINT],
    ["run", "--prompt", "2 + 2?", *ENDPOINT],
    ["up", *ENDPOINT],
    ["env", "test", "math"],
]  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "value", "said"),
    [
        (resource.RLIMIT_NOFILE, 24, "may open at most 24 files, but needs 64. Raise the limit"),
        (resource.RLIMIT_NOFILE, 40, "ulimit -n"),
        (resource.RLIMIT_AS, 300 << 20, "may map at most 300 MiB of memory, but needs 1024 MiB"),
        (resource.RLIMIT_AS, 700 << 20, "ulimit -v"),
    ],
)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: one[0])
def test_one_sentence(
    command: list[str], limit: int, value: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "tasks.jsonl").write_text(TASK)
    ended = subprocess.run(
        [sys.executable, "-m", "gymmesh_cli", *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(limit, (value, value)),
    )
    lines = ended.stderr.strip().splitlines()
    assert ended.returncode in (1, 2), ended.stderr
    assert said in lines[-1]
    assert "Traceback" not in ended.stderr
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "ulimit -v"),
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "ulimit -v"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
        (ExceptionGroup("two", [ValueError(), MemoryError()]), "ulimit -v"),
        (ValueError("a bug"), ""),
        (OSError(errno.ENOENT, "no such file"), ""),
    ],
)
def test_what_a_limit_is_to_blame_for(error: BaseException, said: str) -> None:
    assert limit_met(error).count(said or "?") == (1 if said else 0)
