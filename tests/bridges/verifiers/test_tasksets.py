"""Tasksets of verifiers as an environment: the rewards of its own evaluation, and its faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.bridges.verifiers.runs import SUBPROCESS, TASKSET, collect, own_runs, scripted
from tests.support.endpoint import FakeEndpoint


async def test_a_hundred_episodes_have_its_own_rewards(bridge_python: Path, tmp_path: Path) -> None:
    async with FakeEndpoint(default=scripted) as endpoint:
        env = {**SUBPROCESS, "taskset": {"id": TASKSET.stem, "tasks": 100}}
        evaluation = {"env": env, "url": endpoint.url, "output": str(tmp_path / "own")}
        (scored,) = await own_runs(bridge_python, [evaluation])
        own = {one["index"]: one for one in scored}
        asked = len(endpoint.requests)
        run = await collect(tmp_path, bridge_python, endpoint.url, taskset={"tasks": 100})
        assert len(endpoint.requests) == 2 * asked
    assert run.ended.code == 0, run.ended.err
    assert len(run.rows) == len(own) == 100
    for index, row in run.rows.items():
        assert row["reward"] == own[index]["reward"]
        components = {one["name"]: one for one in row["verification"]["components"]}
        scores = {name: components[name]["value"] for name in own[index]["rewards"]}
        assert scores == own[index]["rewards"]
        assert components["brief"]["weight"] == 0.25
        assert components["characters"]["value"] == own[index]["metrics"]["characters"]
        # Every call is captured, once.
        assert len(_texts(row)) == 2
    assert {row["reward"] for row in run.rows.values()} == {0.125, 0.25, 1.125, 1.25}


def _texts(row: dict[str, Any]) -> list[str]:
    return [
        part["text"]
        for item in row["response"]["output"]
        if item.get("role") == "assistant"
        for part in item["content"]
    ]
