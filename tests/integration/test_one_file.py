"""One file is enough: an environment with examples of its own is run, collected and served."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from gymmesh_mesh import connect
from tests.support.cli import BOUND_S, gym, rows_of
from tests.support.endpoint import FakeEndpoint, text

DESK = '''
"""A desk."""
from gymmesh import Environment, Rollout, Session, Turn, reward, tool
from limits import LIMIT

class Desk(Environment[list[str]]):
    """A desk that knows a number."""

    state = list
    examples = [
        {"prompt": "What is 17 * 23?", "wanted": "391"},
        {"prompt": [{"role": "user", "content": "Say 5."}], "wanted": "5", "task_id": "five"},
    ]

    @tool
    def number(self, session: Session[list[str]], of: str) -> int:
        """The number of something."""
        session.state.append(of)
        return LIMIT

    def next_turn(self, session, new) -> Turn:
        return Turn("Are you sure?", done=len(session.state) > 1)

    @reward
    def right(self, answer: str, wanted: str) -> bool:
        return wanted in answer

    @reward(weight=0.5)
    def asked(self, session, rollout) -> float:
        return float("desks" in session.state)
'''


BROKEN = '''
from gymmesh import Environment, Rollout, Session


class Broken(Environment[None]):
    """Raises."""

    examples = [{"task_id": "a", "prompt": "Say yes."}]

    def verify(self, session: Session[None], rollout: Rollout) -> float:
        self.seen = rollout.answer
        return compare({}, rollout.answer)


def compare(answers: dict, answer: str) -> float:
    return float(answers["wanted"] == answer)
'''


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    (tmp_path / "limits.py").write_text("LIMIT = 3\n")
    path = tmp_path / "desk.py"
    path.write_text(DESK)
    return path


async def test_a_file_is_collected_with_its_own_examples(desk: Path, tmp_path: Path) -> None:
    async with FakeEndpoint(default=text("It is 391.")) as endpoint:
        command = ["collect", "desk.py", "--model-url", endpoint.url, "--model", "m", "--quiet"]
        command += ["--set", "agents.tool_loop.max_steps=1"]
        done = await gym(*command, cwd=tmp_path)
        assert done.code == 0, done.err
        rows = {row["task_id"]: row for row in rows_of(tmp_path / "rollouts.jsonl")}
        assert {name: row["reward"] for name, row in rows.items()} == {
            "desk-example-1": 1.0,
            "five": 0.0,
        }
        assert rows["five"]["environment"] == "desk"
        assert rows["five"]["verification"]["explanation"] == "right 0, asked 0"
        again = await gym(*command, "--resume", cwd=tmp_path)
        assert "kept from an earlier run" in again.out
        desk.write_text(DESK.replace("Say 5.", "Say 6."))
        other = await gym(*command, "--resume", cwd=tmp_path)
        assert other.code == 1
        other.said("the tasks (line 2 (task 'five') differs")
        replaced = await gym(*command, "--overwrite", cwd=tmp_path)
        assert replaced.code == 0, replaced.err


async def test_what_cannot_be_meant_is_said(desk: Path, tmp_path: Path) -> None:
    (await gym("collect", cwd=tmp_path)).said("No tasks given.", "--input", "desk.py")
    (await gym("run", cwd=tmp_path)).said("--prompt", "desk.py")
    elsewhere = ["--agent", "127.0.0.1:1"]
    (await gym("collect", "desk.py", *elsewhere, cwd=tmp_path)).said("With --agent, name an")
    (await gym("collect", "dask.py", cwd=tmp_path)).said("no file dask.py")
    (tmp_path / "two.py").write_text(DESK + "\nclass Other(Desk):\n    '''Other.'''\n")
    (await gym("collect", "two.py", cwd=tmp_path)).said("two.py:Desk, two.py:Other")
    (tmp_path / "bare.py").write_text("def f(text): return 1.0\n")
    (await gym("collect", "bare.py", cwd=tmp_path)).said("no example tasks", "--input")
    (tmp_path / "rollouts.examples.jsonl").write_text('{"task_id":"mine"}\n')
    kept = await gym("collect", "desk.py", cwd=tmp_path)
    kept.said("rollouts.examples.jsonl already exists and holds other tasks")
    assert (tmp_path / "rollouts.examples.jsonl").read_text() == '{"task_id":"mine"}\n'


async def test_a_file_runs_with_one_of_its_examples(desk: Path, tmp_path: Path) -> None:
    (tmp_path / "answers.jsonl").write_text('{"match": "*", "answers": [{"text": "5"}]}\n')
    model = ["--set", "models.policy.path=answers.jsonl", "--set", "agents.tool_loop.max_steps=1"]
    done = await gym("run", "desk.py", "--index", "1", *model, cwd=tmp_path)
    assert done.code == 0, done.err
    assert "user Say 5." in done.out
    assert "verified reward 1  (right 1, asked 0)" in done.out
    (await gym("run", "desk.py", "--index", "2", *model, cwd=tmp_path)).said(
        "number of examples: 2"
    )


async def test_a_file_is_served_alone_and_a_client_plays(desk: Path, tmp_path: Path) -> None:
    """Without a registry: `connect` finds it at its address."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gymmesh_cli", "serve", "environment", "desk.py", "--json"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=PIPE,
        cwd=tmp_path,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(BOUND_S):
            address = json.loads(await process.stdout.readline())["address"]
        async with connect(address) as client, client.session() as session:
            assert client.about.name == "desk"
            assert list(session.tools) == ["number"]
            assert await session.call("number", of="desks") == "3"
            assert await session.say("Perhaps.") == "Are you sure?"
            verdict = await session.verify("391")
        assert verdict.reward == 1.5
        async with connect(address) as client, client.session({"prompt": "?", "wanted": ""}) as one:
            assert "do not fit" in await one.call("number")
            assert "do not fit" in await one.call("number", name="desks")  # a tool may have a name
            assert (await one.verify("x")).reward == 1.0
    finally:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(BOUND_S):
            assert await process.wait() == 0


async def test_the_traceback_of_a_fault_is_the_authors_code_alone(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    (tmp_path / "answers.jsonl").write_text('{"match": "*", "answers": [{"text": "yes"}]}\n')
    model = ["--set", "models.policy.path=answers.jsonl"]
    done = await gym("run", "broken.py", *model, cwd=tmp_path)
    assert done.code != 0
    shown = done.err.partition("Traceback (most recent call last):")[2]
    assert 'broken.py", line 12, in verify' in shown
    assert 'broken.py", line 16, in compare' in shown
    assert "gymmesh_resource" not in shown.partition("KeyError: 'wanted'")[0]


async def test_wrong_examples_are_named_with_a_command_that_checks_all(tmp_path: Path) -> None:
    """Not by their file, which is a temporary one."""
    for name in ("one", "two"):
        folder = tmp_path / "suite" / name
        folder.mkdir(parents=True)
        (folder / "task.toml").write_text("[environment]\ngpus = 1\n")
    (tmp_path / "mesh.yaml").write_text(
        "environments: {tasks: {use: harbor, options: {tasks: suite}}}\n"
        "defaults: {environment: tasks}\n"
    )
    failed = await gym("collect", "--config", "mesh.yaml", cwd=tmp_path)
    assert failed.code == 1
    failed.said("examples of tasks:1: harbor: one: ", "gym-cli data validate --config mesh.yaml")
    assert "/tmp" not in failed.err.replace(str(tmp_path), "")
    checked = await gym("data", "validate", "--config", "mesh.yaml", cwd=tmp_path)
    assert (checked.code, "examples of tasks: 2 problems" in checked.out) == (1, True)
