"""Peers of this contract and of the next minor version, both ways."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gymmesh_mesh import MeshConfig, up
from gymmesh_runtime.config import load_config
from tests.contract.versions.next_contract import write_next_stubs
from tests.support.cli import gym

REPOSITORY = Path(__file__).parents[2]
SHOP = REPOSITORY / "examples/first_environment/shop.py"
BOUND_S = 240.0


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of a process that speaks the next version."""
    stubs = write_next_stubs(tmp_path_factory.mktemp("next"))
    return {**os.environ, "PYTHONPATH": f"{stubs}{os.pathsep}{REPOSITORY}"}


@asynccontextmanager
async def _running(module: str, env: Mapping[str, str], *arguments: str) -> AsyncIterator[Any]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"tests.contract.versions.{module}", *arguments),
        env=dict(env),
        cwd=REPOSITORY,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _first_line(process: Any) -> str:
    line = await asyncio.wait_for(process.stdout.readline(), BOUND_S)
    return str(line.decode().strip())


async def test_a_collector_and_an_agent_that_is_newer(
    newer: Mapping[str, str], tmp_path: Path
) -> None:
    ids = ("plain", "ignorable", "not_ignorable", "stop_reason")
    tasks, output = tmp_path / "tasks.jsonl", tmp_path / "rows.jsonl"
    params = {"input": "What is 2+3?"}
    rows = [
        {"task_id": one, "environment": "math", "responses_create_params": params} for one in ids
    ]
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    async with _running("newer_agent", newer) as agent:
        address = await _first_line(agent)
        done = await gym("collect", "-i", str(tasks), "-o", str(output), "--agent", address, "-q")
    assert done.code == 3, done.err
    completed = [json.loads(line) for line in output.read_text().splitlines()]
    assert {row["task_id"]: row["reward"] for row in completed} == {"plain": 1.0, "ignorable": 1.0}
    text = output.with_name("rows.failures.jsonl").read_text()
    failed = {row["task_id"]: row["failure"] for row in map(json.loads, text.splitlines())}
    assert set(failed) == {"not_ignorable", "stop_reason"}
    for failure in failed.values():
        assert failure["status"]["reason"] == "CONTRACT_VIOLATED"
        assert failure["retry_safe"] is False


async def test_a_mesh_and_a_client_that_is_newer(newer: Mapping[str, str], tmp_path: Path) -> None:
    answers = {"match": "*", "answers": [{"text": "Done."}]}
    (tmp_path / "answers.jsonl").write_text(json.dumps(answers) + "\n")
    config = {
        "models": {"policy": {"backend": "replay", "path": str(tmp_path / "answers.jsonl")}},
        "environments": {"shop": {"use": f"{SHOP}:Shop"}},
    }
    path = tmp_path / "mesh.yaml"
    path.write_text(json.dumps(config))
    async with up(load_config([path], [], MeshConfig)) as mesh:
        at = (mesh.address_of("agent"), mesh.address_of("discovery"))
        async with _running("newer_client", newer, *at) as client:
            said = json.loads(await _first_line(client))
    assert said == {
        "rollout": ["started", "completed"],  # what was added to the request is not looked at
        "added_method": "UNIMPLEMENTED",
        "hello 1.1": "welcomed by 1.0",
        "hello 1.0": "welcomed by 1.0",
        "hello ": "welcomed by 1.0",
        "hello 2.0": "FAILED_PRECONDITION",
        "listed": [["1.1", "HEALTH_SERVING"]],
    }
