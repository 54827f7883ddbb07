"""The same rows come out, whether the services share a process or have one each."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.world.files import FAILED, KINDS, write_world
from tests.support.cli import run

Row = dict[str, Any]
_START_S = 60
# What differs from run to run: identities, times, and the seeds derived from identities.
_VARYING = frozenset(
    (
        "rollout_id", "run_id", "id", "created_at", "timings", "duration_us", "stages", "call_id",
        "error_id", "started_at", "seed", "total_us", "queue_us", "endpoint_us", "retry_us",
    )
)  # fmt: skip

_OUTCOMES = {
    "plain": [],
    "parallel": [("add", "OK", 3)],
    "tool_error": [("refuse", "TOOL_ERROR", 1)],
    "bad_arguments": [("add", "BAD_ARGUMENTS", 2), ("ad", "UNKNOWN_TOOL", 1)],
}


def _collect(folder: Path, name: str, tasks: Path, *mesh: str) -> tuple[list[Row], list[Row]]:
    output = folder / f"{name}.jsonl"
    done = run(
        "collect", "--input", str(tasks), "--output", str(output), "--num-repeats", "2", *mesh
    )
    assert done.code == 3, done.err  # done, with failures
    return _rows(output), _rows(folder / f"{name}.failures.jsonl")


def _rows(path: Path) -> list[Row]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return sorted(rows, key=lambda row: (row["task_id"], row["repeat_index"]))


def _settled(value: Any) -> Any:
    """A row without what varies."""
    if isinstance(value, dict):
        return {key: _settled(one) for key, one in value.items() if key not in _VARYING}
    if isinstance(value, list):
        return [_settled(one) for one in value]
    if isinstance(value, str):
        return re.sub(r"error_id [0-9a-f]{8}", "error_id …", value)
    return value


@contextmanager
def _up(config: Path) -> Iterator[list[Row]]:
    """`gym-cli up`, until SERVING and back down; yields its services."""
    command = [sys.executable, "-m", "gymmesh_cli", "up", "--config", str(config), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield json.loads(line)
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=_START_S)
    assert process.returncode == 0, errors


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    folder = tmp_path_factory.mktemp("world")
    config, tasks = write_world(folder)
    return folder, config, tasks


@pytest.fixture(scope="module")
def embedded(world: tuple[Path, Path, Path]) -> tuple[list[Row], list[Row]]:
    folder, config, tasks = world
    return _collect(folder, "embedded", tasks, "--config", str(config))


@pytest.fixture(scope="module")
def apart(world: tuple[Path, Path, Path]) -> tuple[list[Row], list[Row]]:
    folder, config, tasks = world
    with _up(config) as services:
        assert sorted(one["kind"] for one in services) == [
            "agent", "discovery", "environment", "model",
        ]  # fmt: skip
        assert len({one["pid"] for one in services}) == 4
        agent = next(one["address"] for one in services if one["kind"] == "agent")
        return _collect(folder, "apart", tasks, "--agent", agent)


def test_rows_are_equal(
    embedded: tuple[list[Row], list[Row]], apart: tuple[list[Row], list[Row]]
) -> None:
    for one, other in zip(embedded, apart, strict=True):
        assert [_settled(row) for row in one] == [_settled(row) for row in other]


@pytest.mark.parametrize("where", ["embedded", "apart"])
def test_every_rollout_has_one_outcome(where: str, request: pytest.FixtureRequest) -> None:
    completed, failed = request.getfixturevalue(where)
    outcomes = [(row["task_id"], row["repeat_index"]) for row in completed + failed]
    assert sorted(outcomes) == sorted((kind, repeat) for kind in KINDS for repeat in (0, 1))
    assert {row["task_id"]: row["failure"]["boundary"] for row in failed} == FAILED
    assert all(row["reward"] is None for row in failed)


def _one(rows: list[Row], kind: str) -> Row:
    return next(row for row in rows if row["task_id"] == kind and row["repeat_index"] == 0)


def _outputs(row: Row) -> list[str]:
    items = row["response"]["output"]
    return [item["output"] for item in items if item["type"] == "function_call_output"]


def test_what_the_rows_say(embedded: tuple[list[Row], list[Row]]) -> None:
    rows, _ = embedded
    rewards = {kind: _one(rows, kind)["reward"] for kind in KINDS if kind not in FAILED}
    assert rewards == {
        "plain": 1.0, "wrong": 0.0, "tool": 1.0, "parallel": 1.0, "turns": 1.0,
        "tool_error": 1.0, "bad_arguments": 1.0, "truncated": 0.0, "steps": 0.0,
        "unjudged": None, "pending": None, "flaky": 1.0,
    }  # fmt: skip
    assert _outputs(_one(rows, "parallel")) == ["3", "7", "20"]
    assert _one(rows, "parallel")["metadata"]["tools_used"] == ["add"]
    for kind, outcomes in _OUTCOMES.items():
        told = _one(rows, kind)["metadata"]["tool_outcomes"]
        assert [(one["name"], one["outcome"], one["calls"]) for one in told] == outcomes
    assert "out of order" in _outputs(_one(rows, "tool_error"))[0]
    assert _one(rows, "truncated")["stop_reason"] == "MAX_OUTPUT_TOKENS"
    assert _one(rows, "steps")["stop_reason"] == "MAX_STEPS"
    assert _one(rows, "unjudged")["verification"]["status"] == "SKIPPED"
    assert _one(rows, "pending")["verification"]["status"] == "PENDING"
    turns = [item for item in _one(rows, "turns")["response"]["output"] if item["role"] == "user"]
    assert [item["content"] for item in turns] == ["turn 1: go on", "turn 2: go on"]


def test_faults_say_what_was_raised_and_where(embedded: tuple[list[Row], list[Row]]) -> None:
    _, failed = embedded
    about = [
        row["failure"]["status"]["metadata"]
        for row in failed
        if row["failure"]["status"]["reason"] == "ENVIRONMENT_FAULT"
    ]
    assert {one["exception"] for one in about} == {
        "RuntimeError: a private detail of the environment"
    }
    assert all(one["at"].startswith("tests/integration/world/workshop.py:") for one in about)
