"""Every language collects the same tasks, and writes the rows that gym-cli writes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gymmesh_mesh import MeshConfig, up
from gymmesh_mesh.processes import Up
from gymmesh_runtime.config import load_config
from tests.clients.conftest import LANGUAGES
from tests.clients.programs import REPOSITORY, collect, comparable
from tests.support.cli import gym

SHOP = REPOSITORY / "examples/first_environment/shop.py"
COUNT, REPEATS = 20, 2


def _call(item: str, count: int) -> dict[str, object]:
    arguments = json.dumps({"item": item, "count": count})
    call = {"type": "function_call", "name": "add", "arguments": arguments, "call_id": "call_1"}
    return {"output": [call]}


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """Some that are right, some that are wrong, and the answers to all of them."""
    path, answers = tmp_path / "tasks.jsonl", tmp_path / "answers.jsonl"
    with path.open("w") as file, answers.open("w") as recorded:
        for number in range(COUNT):
            prompt = f"Put {number} apples into the basket."
            row = {
                "task_id": f"shop-{number}",
                "environment": "shop",
                "seed": number,
                "tags": {"half": "first" if number < COUNT // 2 else "second"},
                "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
                "wanted": {"apple": number},
            }
            given = number if number % 3 else number + 1
            answer = [_call("apple", given), {"text": "Done — fünf \U0001f34e."}]
            file.write(json.dumps(row) + "\n")
            recorded.write(json.dumps({"match": prompt, "answers": answer}) + "\n")
    return path


@pytest.fixture
async def mesh(tasks: Path, tmp_path: Path) -> AsyncIterator[Up]:
    """A mesh as processes: a policy that is recorded, and the shop."""
    answers = str(tasks.with_name("answers.jsonl"))
    config = {
        "models": {"policy": {"backend": "replay", "path": answers}},
        "environments": {"shop": {"use": f"{SHOP}:Shop"}},
    }
    path = tmp_path / "mesh.yaml"
    path.write_text(json.dumps(config))
    async with up(load_config([path], [], MeshConfig)) as running:
        yield running


@pytest.mark.parametrize("language", LANGUAGES)
async def test_rows_are_those_of_gym_cli(
    language: str, mesh: Up, tasks: Path, tmp_path: Path
) -> None:
    address = mesh.address_of("agent")
    output = tmp_path / "ours.jsonl"
    ours = await gym(
        *("collect", "-i", str(tasks), "-o", str(output), "--agent", address),
        *("--num-repeats", str(REPEATS), "-q"),
    )
    assert ours.code == 0, ours.err
    expected = {
        (row["task_id"], row["repeat_index"]): comparable(row)
        for row in map(json.loads, output.read_text().splitlines())
    }
    assert len(expected) == COUNT * REPEATS
    theirs = await collect(language, address, tasks, tmp_path / language, repeats=REPEATS)
    assert theirs.code == 0, theirs.err
    assert theirs.failures == []
    assert {key: comparable(row) for key, row in theirs.rows.items()} == expected
    assert theirs.summary["completed"] == COUNT * REPEATS
