"""What is read of a rollout whose program was captured: its row, exports and new verdicts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from gymmesh_cli.main import cli
from gymmesh_data.rollout import rollout_of_line
from gymmesh_view.rollout.detail import detail_of
from tests.support.docs import ROOT

QUESTION = "What is 1931 + 14? Put the answer inside \\boxed{}."
CALL = {"name": "add", "arguments": '{"a": 1931, "b": 14}', "call_id": "call_1"}
RECORDING = {
    "match": QUESTION,
    "answers": [
        {"output": [{"type": "function_call", **CALL}]},
        {"text": "\\boxed{1945}"},
    ],
}


def run(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        cli(list(arguments))
    assert not ended.value.code


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the example's script."""
    folder = tmp_path_factory.mktemp("rows")
    shutil.copytree(ROOT / "examples" / "any_agent", folder / "examples" / "any_agent")
    (folder / "answers.jsonl").write_text(json.dumps(RECORDING) + "\n")
    answers = ["models.policy.backend=replay", "models.policy.path=answers.jsonl"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run(
            *("collect", "--config", "examples/any_agent/agent.yaml"),
            *("--input", "examples/any_agent/tasks.jsonl", "--output", "out.jsonl", "--quiet"),
            *(part for one in answers for part in ("--set", one)),
        )
    return folder / "out.jsonl"


def test_a_row_has_the_programs_conversation_once(rows: Path) -> None:
    line = rows.read_bytes().splitlines()[0]
    row = json.loads(line)
    assert row["reward"] == 1.0
    assert [one["link"] for one in row["calls"]] == ["CONTINUATION"] * 2
    assert [one["key"] for one in row["annotations"]] == ["script.gateway_request"]
    stored = rollout_of_line(line, "out.jsonl:1")
    # The prompt that the program sent, and not the task's before it.
    assert [one["content"] for one in stored.first_items] == [QUESTION]
    kinds = [one["type"] for one in stored.output]
    assert kinds == ["function_call", "function_call_output", "message"]
    assert [(first, end) for first, end, _ in stored.answers()] == [(0, 1), (2, 3)]
    assert [one["name"] for one in stored.tools] == ["add"]


def test_a_demonstration_has_the_programs_prompt_and_tools(rows: Path) -> None:
    written = rows.with_name("sft.jsonl")
    run("export", str(rows), "--format", "sft", "--output", str(written))
    (record,) = [json.loads(line) for line in written.read_text().splitlines()]
    roles = [message["role"] for message in record["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert json.loads(record["tools"])[0]["function"]["name"] == "add"


def test_it_is_judged_again_as_it_was(rows: Path) -> None:
    written = rows.with_name("again.jsonl")
    run("reverify", str(rows), "--verifier", "string_match", "--output", str(written))
    (row,) = [json.loads(line) for line in written.read_text().splitlines()]
    assert row["reward"] == 1.0


def test_the_page_shows_it(rows: Path) -> None:
    line = rows.read_bytes().splitlines()[0]
    shown: Any = detail_of(rollout_of_line(line, "out.jsonl:1"))
    said = [item for item in shown["items"] if item["kind"] == "message"]
    assert len(said) == 2


def test_the_page_tells_of_a_program_that_rewrote_its_history(rows: Path) -> None:
    row = json.loads(rows.read_bytes().splitlines()[0])
    row["calls"][1] |= {"link": "FORK", "fork": {"reason": "COMPACTION", "common_tokens": 0}}
    shown: Any = detail_of(rollout_of_line(json.dumps(row).encode(), "out.jsonl:1"))
    assert shown["forks"] == [{"call_id": "c2", "reason": "COMPACTION", "common_tokens": 0}]


TITLE_FIRST = """    title = {"role": "user", "content": f"Write a short title: {prompt}"}
    client.chat.completions.create(model="any", messages=[title])
"""


def titled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of two tasks of the example's script, which asks for a title before its work."""
    place = folder / "examples" / "any_agent"
    shutil.copytree(ROOT / "examples" / "any_agent", place)
    text = (place / "script.py").read_text(encoding="utf-8")
    begins = "    client = OpenAI()\n"
    assert begins in text
    (place / "script.py").write_text(text.replace(begins, begins + TITLE_FIRST), encoding="utf-8")
    title = {"match": f"Write a short title: {QUESTION}", "answers": [{"text": "A sum"}]}
    answers = [title, RECORDING]
    (folder / "answers.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in answers))
    monkeypatch.chdir(folder)
    run(
        *("collect", "--config", "examples/any_agent/agent.yaml", "--num-repeats", "2"),
        *("--input", "examples/any_agent/tasks.jsonl", "--output", "out.jsonl", "--quiet"),
        *("--set", "models.policy.backend=replay", "--set", "models.policy.path=answers.jsonl"),
    )
    return folder / "out.jsonl"


def test_a_title_that_is_taken_for_the_work_is_told_once_in_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = titled(tmp_path, monkeypatch)
    said = "the main conversation is one call without tools, but actor conversation-1"
    assert capfd.readouterr().out.count(said) == 1
    assert rows.with_name("out.errors.log").read_text(encoding="utf-8").count(said) == 1
    actors = [
        [one.get("actor", "") for one in json.loads(line)["calls"]]
        for line in rows.read_bytes().splitlines()
    ]
    assert actors == [["", "conversation-1", "conversation-1"]] * 2
    run("show", str(rows))
    shown = " ".join(capfd.readouterr().out.split())
    assert f"check {said} made calls with tools" in shown
