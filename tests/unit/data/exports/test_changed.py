"""What an export says that it changed is in its records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gymmesh_cli.main import cli
from gymmesh_data.conversation import AS_TEXT
from tests.unit.data.rows import call, read_records, result, row, text, write_rows

ODD = call("add", "[1]", "c1")


@pytest.mark.parametrize(("whole", "written"), [(False, 0), (True, 1)])
def test_a_call_after_the_end_of_a_pair_is_not_in_its_record(
    tmp_path: Path, whole: bool, written: int
) -> None:
    better = row(text("First."), ODD, result("c1", "?"), text("5"), reward=1.0)
    better["response"]["output"].insert(1, {"type": "message", "role": "user", "content": "Go on"})
    rows = [better, row(text("No."), repeat=1, reward=0.0)]
    rows.append(row(ODD, result("c1", "?"), text("6"), task="alone", reward=1.0))
    path, out = write_rows(tmp_path / "rows.jsonl", rows), tmp_path / "out.jsonl"
    command = ["export", str(path), "--format", "dpo", "--output", str(out)]
    said = CliRunner().invoke(cli, [*command, *(["--whole-answers"] if whole else [])])
    assert said.exit_code == 0, said.output
    assert json.dumps(read_records(out)).count('"arguments": "[1]"') == written
    assert (f"changed       {AS_TEXT}: {written}\n" in said.output) is bool(written)
    assert "not exported" not in said.output


def test_arguments_as_text_are_changed_and_exported(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [row(ODD, result("c1", "?"), text("5"))])
    command = ["export", str(path), "--format", "sft", "--output", str(tmp_path / "out.jsonl")]
    said = CliRunner().invoke(cli, [*command, "--json"])
    told = json.loads(said.stdout)
    assert (told["changed"], told["losses"]) == ({AS_TEXT: 1}, {})
