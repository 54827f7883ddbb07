"""What models, endpoints and files say reaches the terminal as text, whatever the command."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gymmesh_runtime.text.plain_text import laid_out
from tests.support import endpoint as fake
from tests.support.cli import BOUND_S, sums, write_tasks
from tests.support.endpoint import FakeEndpoint
from tests.support.forked import fork_on_terminal

# Sets the clipboard, clears the screen (in 7 and in 8 bits), turns the direction, forges verdicts.
HOSTILE = (
    " verified reward 1\nbegin\x1b]52;c;aGVsbG8=\x07\x1b[2J\x9b2J\x7f"
    "\u202etxet\u2028 verified reward 1\r"
    " verified reward 1\n verified reward 1\nend"
)
# What we write ourselves: colours, and the progress that is drawn over.
OURS = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\d+F|\x1b\[0J")


async def on_a_terminal(*args: str | Path, cwd: Path) -> str:
    """What gym-cli writes to a terminal, to its end."""
    ours, theirs = os.openpty()
    process = await fork_on_terminal([*map(str, args)], cwd, theirs)
    os.close(theirs)
    try:
        said = await asyncio.wait_for(asyncio.to_thread(_read_all, ours), BOUND_S)
        await asyncio.wait_for(process.wait(), BOUND_S)
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    finally:
        os.close(ours)
    return said.decode().replace("\r\n", "\n")


def _read_all(terminal: int) -> bytes:
    pieces = []
    try:
        while piece := os.read(terminal, 65536):
            pieces.append(piece)
    except OSError:  # the other side is closed
        pass
    return b"".join(pieces)


def harmless(said: str, *words: str, forged: str = r"\s?verified reward 1") -> None:
    """Nothing acts upon the terminal, no line looks like a verdict of ours, and the words are
    there.
    """
    text = OURS.sub("", said)
    assert laid_out(text) == text
    assert "Traceback" not in text
    assert not [line for line in text.splitlines() if re.match(forged, line)], text
    for word in words:
        assert word in text, text


@pytest.fixture
async def endpoint() -> AsyncIterator[FakeEndpoint]:
    async with FakeEndpoint(default=fake.text(HOSTILE)) as server:
        yield server


@pytest.fixture
def model(endpoint: FakeEndpoint) -> list[str]:
    return ["--model-url", endpoint.url, "--model", "fake", "--set", "models.policy.max_retries=0"]


@pytest.mark.parametrize("more", [[], ["--deltas"], ["--json"]])
async def test_run(
    tmp_path: Path, model: list[str], endpoint: FakeEndpoint, more: list[str]
) -> None:
    write_tasks(tmp_path, [{**sums(1)[0], "expected_answer": "7"}])
    calls = [("call_1", "calc\x1b[2Jx\n verified reward 1", '{"expression": "\x9b2J"}')]
    endpoint.script = [fake.answer(HOSTILE, calls, reasoning=HOSTILE)]
    said = await on_a_terminal("run", "-i", "tasks.jsonl", *model, *more, cwd=tmp_path)
    harmless(said, "begin", r"\u202etxet")
    if "--json" in more:
        assert HOSTILE in json.loads(said)["response"]["output"][-1]["content"][0]["text"]


async def test_an_endpoint_that_fails(
    tmp_path: Path, model: list[str], endpoint: FakeEndpoint
) -> None:
    write_tasks(tmp_path, sums(1))
    endpoint.default = fake.raw(json.dumps({"error": {"message": HOSTILE}}).encode(), 400)
    for command in (["run"], ["collect", "-o", "out.jsonl"]):
        said = await on_a_terminal(*command, "-i", "tasks.jsonl", *model, cwd=tmp_path)
        harmless(said, "MODEL")
    harmless(await on_a_terminal("models", "check", *model, cwd=tmp_path), "FAILED")


async def test_models_check(tmp_path: Path, model: list[str]) -> None:
    harmless(await on_a_terminal("models", "check", *model, cwd=tmp_path), "begin")


async def test_a_run_s_files(tmp_path: Path, model: list[str]) -> None:
    task = f"t{HOSTILE}"
    write_tasks(tmp_path, [{**sums(1)[0], "task_id": task, "expected_answer": "7"}])
    collect = ["collect", "-i", "tasks.jsonl", "-o", "out.jsonl", "--trace", *model]
    harmless(await on_a_terminal(*collect, cwd=tmp_path), "1 completed")
    rows = (tmp_path / "out.jsonl").read_bytes().split(b"\n")
    named = ["out.jsonl", "--task", task]
    shown = await on_a_terminal("data", "show", *named, cwd=tmp_path)
    harmless(shown)
    assert json.loads(shown) == json.loads(rows[0])
    for more in (["--attempts"], ["--attempts", "--json"]):
        harmless(await on_a_terminal("data", "show", *named, *more, cwd=tmp_path))
    for more in ([], ["--json"]):
        harmless(await on_a_terminal("data", "trace", *named, *more, cwd=tmp_path), "begin")
    harmless(await on_a_terminal("data", "show", "out.jsonl", "--task", HOSTILE, cwd=tmp_path))


async def test_a_task_file(tmp_path: Path, model: list[str]) -> None:
    rows = [
        {**sums(1)[0], "task_id": HOSTILE},
        {**sums(1)[0], "task_id": HOSTILE},
        {**sums(1)[0], "environment": HOSTILE},
        {"responses_create_params": {"input": "x", "tools": [
            {"type": "function", "name": HOSTILE},
            {"type": "function", "name": HOSTILE},
            {"type": "function", "name": "a", "parameters": {"type": HOSTILE}},
        ]}},
    ]  # fmt: skip
    write_tasks(tmp_path, rows)
    (tmp_path / "mesh.yaml").write_text("environments: {math: {}}\n")
    validate = ["data", "validate", "tasks.jsonl", "--config", "mesh.yaml"]
    for more in ([], ["--json"]):
        harmless(await on_a_terminal(*validate, *more, cwd=tmp_path), "begin")
    collect = ["collect", "-i", "tasks.jsonl", "-o", "out.jsonl", *model]
    harmless(await on_a_terminal(*collect, cwd=tmp_path), "tasks.jsonl:2: task_id: ")
    harmless(await on_a_terminal("run", "--task", "tasks.jsonl:3", *model, cwd=tmp_path))


CODE = '''
from gymmesh_resource import Environment, tool


class Rude(Environment[None]):
    __doc__ = {text!r}
    examples = "tasks.jsonl"

    @tool
    def act(self) -> str:
        """Act."""
        return "x"

    def check_task(self, task):
        if "wanted" in task.payload:
            task.require({text!r})

    def verify(self, session, rollout):
        raise ValueError({text!r})
'''


async def test_an_environment(tmp_path: Path, model: list[str]) -> None:
    (tmp_path / "rude.py").write_text(CODE.format(text=HOSTILE))
    (tmp_path / "mesh.yaml").write_text(
        'environments: {rude: {use: "rude.py:Rude"}}\ndefaults: {environment: rude}\n'
    )
    row = {"responses_create_params": {"input": "x"}}
    write_tasks(tmp_path, [row, {**row, "wanted": 1}])
    mesh = ["--config", "mesh.yaml"]
    run = ["run", "--task", "tasks.jsonl:1", *mesh, *model]
    said = OURS.sub("", await on_a_terminal(*run, cwd=tmp_path))
    assert "\n    ValueError: " in said  # the log has the traceback, indented
    for command in (
        run,
        ["env", "list", *mesh],
        ["env", "test", "rude.py:Rude"],
        ["data", "validate", "tasks.jsonl", *mesh],
        ["collect", "-i", "tasks.jsonl", "-o", "out.jsonl", *mesh, *model],
    ):
        said = OURS.sub("", await on_a_terminal(*command, cwd=tmp_path))
        assert laid_out(said) == said, command
        assert not re.search(r"^ ?verified reward 1", said, re.MULTILINE), command


@pytest.mark.parametrize(
    "command",
    [
        [HOSTILE],
        ["collect", "--order", HOSTILE],
        ["collect", "-i", HOSTILE, "-o", HOSTILE],
        ["runs", "show", HOSTILE],
        ["env", "init", HOSTILE],
        ["env", "test", HOSTILE],
        ["models", "pull", HOSTILE],
        ["models", "check", HOSTILE],
        ["data", "show", HOSTILE, "--task", "x"],
        ["data", "validate", HOSTILE],
        ["run", "--prompt", "x", "--set", HOSTILE],
    ],
    ids=lambda command: " ".join(command).replace(HOSTILE, "…"),
)
async def test_mistakes(tmp_path: Path, command: list[str]) -> None:
    harmless(await on_a_terminal(*command, cwd=tmp_path), "begin")


def test_all_that_gym_cli_writes_goes_through_one_place() -> None:
    folder = Path(__file__).resolve().parents[2] / "clients" / "cli" / "gymmesh_cli"
    writes = re.compile(r"click\.(secho|echo|style)|\bprint\(|sys\.stdout\.write")
    found = [path for path in folder.rglob("*.py") if writes.search(path.read_text())]
    assert found == [folder / "terminal" / "writing.py"]
