"""`collect --resume` needs the output alone; credentials come from the environment."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.cli import gym, rows_of, write_tasks
from tests.support.endpoint import FakeEndpoint, Seen, Send, status, text


@pytest.fixture
async def endpoint() -> AsyncIterator[FakeEndpoint]:
    async with FakeEndpoint() as one:
        yield one


def only_with(key: str) -> object:
    """Answers callers that have the key, and refuses others."""

    def reply(seen: Seen) -> Send:
        return text("4") if seen.headers.get("Authorization") == f"Bearer {key}" else status(401)

    return reply


async def test_the_output_is_enough(tmp_path: Path, endpoint: FakeEndpoint) -> None:
    """Whatever the configuration was read from is gone, and so is the folder's name."""
    tasks = [{"prompt": f"{n} + 1?", "expected_answer": "4", "task_id": f"t{n}"} for n in range(3)]
    write_tasks(tmp_path, tasks)
    mesh = tmp_path / "mesh.yaml"
    mesh.write_text(
        f"models: {{policy: {{url: '{endpoint.url}', model: m, api_key: '${{KEY}}', "
        "max_retries: 0}}\nagents: {tool_loop: {max_steps: 1}}\n"
    )
    endpoint.default = only_with("sk-right-0123456789")  # type: ignore[assignment]
    command = ["collect", "-c", "mesh.yaml", "-i", "tasks.jsonl", "-n", "2", "--concurrency", "3"]
    command += ["-o", "out/o.jsonl", "--max-attempts", "1", "--max-alike", "0", "--quiet"]
    first = await gym(*command, cwd=tmp_path, env={"KEY": "sk-wrong-0123456789"})
    assert rows_of(tmp_path / "out/o.jsonl") == [], first.out
    again = "gym-cli collect --resume --output out/o.jsonl --retry failed"
    assert again in first.out
    for name in ("o.journal", "o.run.json"):
        assert b"sk-wrong" not in (tmp_path / "out" / name).read_bytes()
    asked = json.loads((tmp_path / "out/o.run.json").read_text())["asked"]
    assert asked["configuration"]["models"]["policy"]["api_key"] == "${KEY}"
    mesh.unlink()
    (tmp_path / "out/o.run.json").unlink()  # the journal holds it, too
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = await gym(
        *("collect", "--resume", "-o", "../out/o.jsonl", "--retry", "failed"),
        cwd=elsewhere,
        env={"KEY": "sk-right-0123456789"},
    )
    assert done.code == 0, done.err
    rows = rows_of(tmp_path / "out/o.jsonl")
    assert sorted((row["task_id"], row["repeat_index"]) for row in rows) == [
        (f"t{n}", repeat) for n in range(3) for repeat in range(2)
    ]
    assert {row["reward"] for row in rows} == {1.0}


async def test_a_secret_that_was_written_out_is_asked_for(
    tmp_path: Path, endpoint: FakeEndpoint
) -> None:
    write_tasks(tmp_path, [{"prompt": "?", "expected_answer": "4"}])
    endpoint.default = only_with("sk-right-0123456789")  # type: ignore[assignment]
    key = "models.policy.api_key="
    command = ["collect", "-i", "tasks.jsonl", "--model-url", endpoint.url, "--model", "m"]
    command += ["--quiet", "--max-attempts", "1", "--set", "agents.tool_loop.max_steps=1"]
    await gym(*command, "--set", f"{key}sk-wrong-0123456789", cwd=tmp_path)
    resumed = ["collect", "--resume", "--retry", "failed"]
    refused = await gym(*resumed, cwd=tmp_path)
    refused.said("models.policy.api_key: the value was not kept with the run", f"--set {key}VALUE")
    done = await gym(*resumed, "--set", f"{key}sk-right-0123456789", cwd=tmp_path)
    assert done.code == 0, done.err


async def test_an_output_that_is_not_there(tmp_path: Path) -> None:
    done = await gym("collect", "--resume", "-o", "none.jsonl", cwd=tmp_path)
    assert done.code != 0
    done.said("none.jsonl", "nothing to")
