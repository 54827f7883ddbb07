"""gym-cli data show, trace and compact, on an output that the SDK wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from gymmesh_cli.main import cli
from gymmesh_client import OpenOptions, OutputFiles, RetryChoice, RunIdentity, RunOutput
from gymmesh_client.traces import AttemptRecording
from tests.support.rollouts import answer, completed, failed, make_events, verdict

ONE = RunIdentity("t", "c")
Ask = Callable[..., tuple[int, str]]


@pytest.fixture
async def ask(tmp_path: Path) -> Ask:
    """Asks of a run with t-1, completed, and t-2, which failed twice and was then completed."""
    files = OutputFiles(tmp_path / "out.jsonl")
    output = RunOutput.open(files, ONE, OpenOptions(repeats=2, trace=True))
    one, two = output.rollout_id("t-1", 0), output.rollout_id("t-2", 1)
    await output.completed(one, 1, json.dumps({"task_id": "t-1", "né": 1.0}).encode())
    recording = await output.recording(one, 1)
    assert isinstance(recording, AttemptRecording)
    for event in make_events(one, 1, answer("five"), verdict(1.0), completed()):
        recording.add(event)
    recording.end()
    await output.tried(two, 1, 2)
    await output.failed(two, 2, 2, b'{"task_id":"t-2"}')
    recording = await output.recording(two, 2)
    assert recording is not None
    for event in make_events(two, 2, failed()):
        recording.add(event)
    recording.end()
    await output.close()
    again = RetryChoice.parse(["failed"])
    output = RunOutput.open(files, ONE, OpenOptions(resume=True, repeats=1, retry=again))
    await output.completed(two, 3, b'{"task_id":"t-2","attempt":3}')
    await output.close()

    def run(command: str, *more: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, ["data", command, str(files.rows), *more])
        return done.exit_code, done.output

    return run


async def test_a_row_as_it_stands_in_its_file(ask: Ask) -> None:
    assert ask("show", "--task", "t-1") == (0, '{"task_id": "t-1", "n\\u00e9": 1.0}\n')
    assert ask("show", "--task", "t-2", "--repeat", "1")[1] == '{"task_id":"t-2","attempt":3}\n'


async def test_what_became_of_attempts(ask: Ask) -> None:
    code, said = ask("show", "--task", "t-2", "--attempts")
    assert code == 0
    tails = [line.split("+00:00 ")[1] for line in said.splitlines()]
    assert tails == [
        "failed at TOOL (retried)",
        "failed at TOOL (superseded: a retry was asked for)",
        "completed",
    ]
    lines = ask("show", "--task", "t-2", "--attempts", "--json")[1].splitlines()
    facts = [json.loads(line) for line in lines]
    assert [(one["attempt"], one["boundary"], one["current"]) for one in facts] == [
        (1, "TOOL", False),
        (2, "TOOL", False),
        (3, "", True),
    ]
    rollout = facts[0]["rollout_id"]
    assert ask("show", "--rollout", rollout)[1] == '{"task_id":"t-2","attempt":3}\n'


async def test_a_trace_as_text_and_as_json(ask: Ask) -> None:
    code, said = ask("trace", "--task", "t-1", "--repeat", "0")
    assert code == 0
    labels = [line.split()[0] for line in said.splitlines()]
    assert labels[1:] == ["started", "assistant", "verified", "completed"]
    assert "assistant five" in said
    lines = ask("trace", "--task", "t-1", "--json")[1].splitlines()
    assert [json.loads(line)["sequence"] for line in lines] == ["1", "2", "3", "4"]
    code, said = ask("trace", "--task", "t-2", "--attempt", "2")
    assert (code, "failed MODEL" in said) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["show"], 2, "exactly one of --rollout and --task"),
        (["show", "--task", "t-1", "--rollout", "x"], 2, "exactly one of"),
        (["show", "--rollout", "x", "--repeat", "1"], 2, "add --task"),
        (["show", "--rollout", "x"], 1, "rollout 'x' has no outcome yet"),
        (["show", "--task", "t-1", "--repeat", "1"], 1, "task 't-1' repeat 1 has no outcome yet"),
        (["trace", "--task", "t-1", "--attempt", "2"], 1, "attempt 2 has no trace"),
    ],
)
async def test_what_cannot_be_found(ask: Ask, arguments: list[str], code: int, words: str) -> None:
    got, said = ask(*arguments)
    assert (got, words in said) == (code, True), said


def test_no_run_no_trace(tmp_path: Path) -> None:
    path = str(tmp_path / "out.jsonl")
    done = CliRunner().invoke(cli, ["data", "show", path, "--task", "t"])
    assert (done.exit_code, "out.journal is missing" in done.output) == (1, True)


async def test_superseded_rows_are_taken_out(ask: Ask, tmp_path: Path) -> None:
    rows = str(tmp_path / "out.jsonl")
    assert ask("compact") == (0, f"{rows}: 0 superseded rows removed\n")
    again = RetryChoice.parse(["task=t-1"])
    files = OutputFiles(tmp_path / "out.jsonl")
    RunOutput.open(files, ONE, OpenOptions(resume=True, retry=again)).abandon()
    assert ask("compact", "--json") == (0, '{"superseded": 1}\n')
    assert files.rows.read_bytes() == b'{"task_id":"t-2","attempt":3}\n'
    code, said = CliRunner().invoke(cli, ["data", "compact", "nothing.jsonl"]), "is missing"
    assert (code.exit_code, said in code.output) == (1, True)
