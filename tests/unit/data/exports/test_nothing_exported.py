"""gym-cli export where there is nothing to export."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from gymmesh_cli.main import cli
from tests.unit.data.rows import row, text, write_rows


def exported(source: Path) -> Result:
    target = source.with_name("out.jsonl")
    return CliRunner().invoke(cli, ["export", str(source), "--format", "sft", "-o", str(target)])


def test_no_records_are_explained(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "rollouts.jsonl", [row(text("5"), reward=0.0)])
    done = exported(source)
    assert done.exit_code == 1
    why = "skipped: rollouts with a reward below 1: 1"
    said = f"gym-cli: {tmp_path / 'out.jsonl'} has no records ({why})"
    assert done.stderr.splitlines()[-1] == said
    (empty := tmp_path / "empty.jsonl").touch()
    done = CliRunner().invoke(
        cli, ["export", str(empty), "--format", "sft", "-o", str(tmp_path / "none.jsonl")]
    )
    assert done.stderr.endswith("none.jsonl has no records (completed rollouts read: 0)\n")


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    done = exported(tmp_path / "nothing.jsonl")
    assert done.exit_code == 1
    assert "nothing.jsonl" in done.output + str(done.exception)
    assert "journal" not in done.output
