"""`collect --resume` needs the output alone; credentials come from the environment."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gymmesh_client import open_run
from tests.support.cli import BOUND_S, ended, gym, rows_of, start, write_tasks
from tests.support.collecting import CollectAgent, serve_agent
from tests.support.endpoint import FakeEndpoint, Seen, Send, status, text

DESK = '''
from dataclasses import dataclass, field

from gymmesh import Environment, Rollout, Session, tool


@dataclass
class Refunds:
    made: dict[str, int] = field(default_factory=dict)


class Desk(Environment[Refunds]):
    """A support desk."""

    state = Refunds
    examples = [
        {"task_id": "lost", "prompt": "Refund 40 for B20.", "refunds": {"B20": 40}},
        {"task_id": "fine", "prompt": "Give me nothing.", "refunds": {}},
        {"task_id": "slow", "prompt": "Say yes.", "refunds": {}},
    ]

    @tool
    def refund(self, session: Session[Refunds], order: str, amount: int) -> str:
        """Refund an amount of an order."""
        session.state.made[order] = amount
        return "done"

    def verify(self, session: Session[Refunds], rollout: Rollout) -> float:
        return float(session.state.made == rollout.task.payload["refunds"])
'''
REWARD = '''
examples = [
    {"task_id": "fine", "prompt": "Say no.", "expected_answer": "no"},
    {"task_id": "slow", "prompt": "Say yes.", "expected_answer": "yes"},
]


def my_reward(answer: str, expected_answer: str) -> bool:
    """Whether the answer is the expected one."""
    return answer == expected_answer


def polite(answer: str) -> float:
    return float("please" in answer)
'''
CALL = {
    "type": "function_call",
    "call_id": "c1",
    "name": "refund",
    "arguments": '{"order": "B20", "amount": 40}',
}
ANSWERS: list[dict[str, Any]] = [
    {"match": "Refund 40 for B20.", "answers": [{"output": [CALL]}, {"text": "Done."}]},
    {"match": "Give me nothing.", "answers": [{"text": "no"}]},
    {"match": "Say no.", "answers": [{"text": "no"}]},
    {"match": "Say yes.", "answers": [{"text": "yes", "delay_s": 100}]},
]
REPLAYED = ("--set", "models.policy.path=answers.jsonl")
INPUT = ("--input", "tasks.jsonl")
STATELESS = ("--set", "environments.desk.keep_state=false")
OF_FILES = [
    pytest.param(["desk.py"], 3, id="a file"),
    pytest.param(["desk.py:Desk"], 3, id="a class"),
    pytest.param(["reward.py:my_reward"], 2, id="a function"),
    pytest.param(["desk.py", *INPUT], 2, id="a file and tasks"),
    pytest.param(["desk.py", *STATELESS], 3, id="a file and a setting of it"),
    pytest.param(["string_match", *INPUT], 2, id="an installed one"),
]


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
    refused.said(
        "models.policy.api_key: this value is secret, so the run did not store it",
        f"--set {key}VALUE",
    )
    done = await gym(*resumed, "--set", f"{key}sk-right-0123456789", cwd=tmp_path)
    assert done.code == 0, done.err


@pytest.mark.parametrize("more", [(), ("--set", "defaults.environment=math")])
async def test_an_option_that_is_given_again_replaces_all_its_values(
    tmp_path: Path, more: Sequence[str]
) -> None:
    """The mesh is somewhere else now, and nothing answers at its old address."""
    write_tasks(tmp_path, [{"prompt": "?", "task_id": f"t{n}"} for n in range(3)])
    async with serve_agent(CollectAgent()) as port:
        where = ("--agent", f"127.0.0.1:{port}", "--env", "math", "--share", "math=2")
        command = ("collect", *INPUT, *where, *more, "-o", "z.jsonl", "--limit", "1")
        first = await gym(*command, cwd=tmp_path)
    assert first.code == 0, first.err
    async with serve_agent(agent := CollectAgent()) as port:
        moved = ("--agent", f"127.0.0.1:{port}", "--share", "math=3", "--limit", "3")
        done = await gym("collect", "--resume", "-o", "z.jsonl", *moved, cwd=tmp_path)
        assert done.code == 0, done.err
    assert sorted(one.task.task_id for one in agent.requests) == ["t1", "t2"]
    kept = json.loads((tmp_path / "z.run.json").read_text())["asked"]["arguments"]
    assert (kept.count("--agent"), kept.count("--share")) == (1, 1)
    assert f"127.0.0.1:{port}" in kept


async def test_an_output_that_is_not_there(tmp_path: Path) -> None:
    done = await gym("collect", "--resume", "-o", "none.jsonl", cwd=tmp_path)
    assert done.code != 0
    done.said("none.jsonl", "nothing to")


def files_in(folder: Path) -> None:
    """An environment and a reward function in one file each, with tasks and answers."""
    (folder / "desk.py").write_text(DESK)
    (folder / "reward.py").write_text(REWARD)
    extra: dict[str, Any] = {"refunds": {}, "extraction_mode": "full_response"}
    rows = [{"task_id": name, "prompt": f"Say {name}.", **extra} for name in ("no", "yes")]
    write_tasks(folder, [{**row, "expected_answer": row["task_id"]} for row in rows])
    answers(folder, ANSWERS)


def answers(folder: Path, rows: list[dict[str, Any]]) -> None:
    (folder / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


async def all_but_one_task(folder: Path, asked: Sequence[str], tasks: int) -> Process:
    """A run of two rollouts a task, of which those of one task still wait for the model."""
    files_in(folder)
    process = await start("collect", *asked, *REPLAYED, "-n", "2", "-o", "z.jsonl", cwd=folder)
    async with asyncio.timeout(BOUND_S):
        while completed(folder / "z.jsonl") < 2 * (tasks - 1):
            assert process.returncode is None
            await asyncio.sleep(0.05)
    return process


def completed(output: Path) -> int:
    """How many rollouts the journal says are completed."""
    if not output.with_suffix(".journal").exists():
        return 0
    with open_run(output) as run:
        return run.completed


async def resumes(folder: Path, command: str, tasks: int) -> None:
    """The command, which names the output alone, completes the run and keeps what is there."""
    before = (folder / "z.jsonl").read_bytes()
    answers(folder, [{"match": "*", "answers": [{"text": "yes"}]}])
    done = await gym(*shlex.split(command)[1:], cwd=folder)
    assert done.code == 0, done.err
    rows = rows_of(folder / "z.jsonl")
    assert (folder / "z.jsonl").read_bytes().startswith(before)
    assert len({(row["task_id"], row["repeat_index"]) for row in rows}) == len(rows) == 2 * tasks
    assert {row["reward"] for row in rows} == {1.0}


@pytest.mark.parametrize(("asked", "tasks"), OF_FILES)
async def test_an_environment_of_a_file_after_ctrl_c(
    tmp_path: Path, asked: list[str], tasks: int
) -> None:
    process = await all_but_one_task(tmp_path, [*asked, "--grace", "0.1"], tasks)
    os.killpg(process.pid, signal.SIGINT)
    done = await ended(process)
    assert done.code == 130, done.err
    command = "gym-cli collect --resume --output z.jsonl"
    assert command in done.out
    await resumes(tmp_path, command, tasks)


@pytest.mark.parametrize(("asked", "tasks"), OF_FILES)
async def test_an_environment_of_a_file_after_sigkill(
    tmp_path: Path, asked: list[str], tasks: int
) -> None:
    process = await all_but_one_task(tmp_path, asked, tasks)
    os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    await resumes(tmp_path, "gym-cli collect --resume --output z.jsonl", tasks)


@pytest.mark.parametrize("model", [REPLAYED, ()], ids=["replay", "the embedded model"])
async def test_a_finished_run_of_a_file(tmp_path: Path, model: Sequence[str]) -> None:
    files_in(tmp_path)
    few = ("--limit", "1", "--set", "agents.tool_loop.params.max_output_tokens=4")
    first = await gym("collect", "desk.py", *model, *few, "-o", "z.jsonl", cwd=tmp_path)
    assert first.code == 0, first.err
    before = (tmp_path / "z.jsonl").read_bytes()
    done = await gym("collect", "--resume", "-o", "z.jsonl", cwd=tmp_path)
    assert done.code == 0, done.err
    assert (tmp_path / "z.jsonl").read_bytes() == before


async def test_a_setting_of_an_environment_of_a_file_holds(tmp_path: Path) -> None:
    files_in(tmp_path)
    few = ("--limit", "1", "-o", "z.jsonl")
    done = await gym("collect", "desk.py", *REPLAYED, *STATELESS, *few, cwd=tmp_path)
    assert done.code == 0, done.err
    about = json.loads((tmp_path / "z.run.json").read_text())
    assert about["configuration"]["environments"]["desk"]["keep_state"] is False
