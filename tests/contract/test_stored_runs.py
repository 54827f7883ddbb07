"""Runs that 0.1.0 left on disk: read, resumed, retried, merged and compared as then.

tests/fixtures/runs_of_0_1 has the runs, what is in them, and what every reader made of them.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gymmesh_cli.main import cli
from gymmesh_client import OutputFiles, open_run
from tests.fixtures.runs_of_0_1.make import REPEATS, TASKS, Runs, tool_events
from tests.fixtures.runs_of_0_1.reading import RUNS, copy_of, expected, read_all
from tests.support.rollouts import ScriptedAgent

LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "zstd": {"zstd": True},
    "shards": {"shard_rows": 3},
    "zstd_shards": {"zstd": True, "shard_rows": 3},
}
RESUMED = [name for name in RUNS if name not in ("no_journal", "parts", "reverified")]


def known(expected: Any, found: Any) -> Any:
    """Of what is found, what was expected: keys that objects have got since are left out."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return {key: known(expected[key], found[key]) for key in expected if key in found}
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [known(one, other) for one, other in zip(expected, found, strict=True)]
    return found


@pytest.mark.parametrize("name", RUNS)
def test_every_reader_says_what_it_said(name: str, tmp_path: Path) -> None:
    was = expected(name)
    found = read_all(copy_of(name, tmp_path))
    assert set(was) <= set(found)
    for part in was:
        assert known(was[part], found[part]) == was[part], part


def by_rollout(path: Path) -> dict[str, dict[str, Any]]:
    with open_run(path) as run:
        return {one["rollout_id"]: one for one in (*run.rows(), *run.failures())}


@pytest.mark.parametrize("name", RESUMED)
async def test_resuming_runs_what_is_missing_and_keeps_the_rest(name: str, tmp_path: Path) -> None:
    rows = copy_of(name, tmp_path)
    before = by_rollout(rows)
    agent = ScriptedAgent(tool_events)
    await Runs(tmp_path).collect(name, agent, resume=True, **LAYOUTS.get(name, {}))
    after = by_rollout(rows)
    assert len(after) == TASKS * REPEATS
    assert len(agent.requests) == TASKS * REPEATS - len(before)
    assert {key: after[key] for key in before} == before


@pytest.mark.parametrize("name", LAYOUTS)
async def test_files_that_are_resumed_keep_their_bytes(name: str, tmp_path: Path) -> None:
    """Nothing is missing, so nothing is written to the rows, whatever the layout."""
    rows = copy_of(name, tmp_path)
    files = {path: path.read_bytes() for path in rows.parent.glob("rollouts*.jsonl*")}
    assert files
    await Runs(tmp_path).collect(name, tool_events, resume=True, **LAYOUTS[name])
    assert {path: path.read_bytes() for path in files} == files


async def test_runs_whose_derived_files_are_gone_are_the_same(tmp_path: Path) -> None:
    rows = copy_of("plain", tmp_path)
    files = OutputFiles(rows)
    files.index.unlink()
    files.run.unlink()
    assert by_rollout(rows) == by_rollout(copy_of("plain", tmp_path / "other"))
    await Runs(tmp_path).collect("plain", tool_events, resume=True)
    assert len(by_rollout(rows)) == TASKS * REPEATS


def test_shards_are_merged_and_runs_compared(tmp_path: Path) -> None:
    part, plain = copy_of("parts", tmp_path), copy_of("plain", tmp_path)
    whole = tmp_path / "whole.jsonl"
    shards = [str(part.with_name(f"part-{index}.jsonl")) for index in range(2)]
    ended = CliRunner().invoke(cli, ["runs", "merge", str(whole), *shards])
    assert ended.exit_code == 0, ended.output
    rows = by_rollout(whole)
    assert rows == {**by_rollout(Path(shards[0])), **by_rollout(Path(shards[1]))}
    rewards = {(one["task_id"], one["repeat_index"]): one["reward"] for one in rows.values()}
    other = {
        (one["task_id"], one["repeat_index"]): one["reward"] for one in by_rollout(plain).values()
    }
    assert rewards == other
    ended = CliRunner().invoke(cli, ["compare", str(plain), str(whole), "--json"])
    (said,) = json.loads(ended.stdout)["comparisons"]
    assert (said["tasks"], said["ties"], said["difference"]["value"]) == (TASKS, TASKS, 0.0)


def test_a_run_that_was_killed_is_compacted(tmp_path: Path) -> None:
    rows = copy_of("not_compacted", tmp_path)
    before = by_rollout(rows)
    ended = CliRunner().invoke(cli, ["data", "compact", str(rows)])
    assert ended.exit_code == 0, ended.output
    assert by_rollout(rows) == before
    lines = [json.loads(line) for line in OutputFiles(rows).superseded.read_bytes().splitlines()]
    assert Counter(one["task_id"] for one in lines) == {"t-0": 2, "t-1": 2}
