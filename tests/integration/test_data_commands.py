"""gym-cli env index and gym-cli data generate: what environments search and are asked."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gymmesh_cli.main import cli
from tests.conftest import require


def gym(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, catch_exceptions=False)


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "bridge.md").write_text("# Marby\n\nThe bridge has seven arches.\n")
    (tmp_path / "docs" / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / "more.jsonl").write_text('{"id": "mill", "text": "The mill stands still."}\n')
    return tmp_path


def test_documents_are_indexed(documents: Path) -> None:
    result = gym("env", "index", "docs/", "more.jsonl", "--output", "index.db")
    assert (result.exit_code, result.stdout) == (0, "index.db: 2 documents\n")
    assert "picture.png" in result.stderr
    with closing(sqlite3.connect(documents / "index.db")) as database:
        found = database.execute("SELECT rowid FROM pages WHERE pages MATCH 'arches'").fetchall()
        ids = database.execute("SELECT id FROM documents ORDER BY id").fetchall()
    assert len(found) == 1
    assert ids == [("bridge.md",), ("mill",)]


def test_word_forms_are_found_by_the_english_tokenizer(documents: Path) -> None:
    options = ["--tokenizer", "english", "-o", "index.db"]
    assert gym("env", "index", "docs", *options).exit_code == 0
    with closing(sqlite3.connect(documents / "index.db")) as database:
        assert database.execute("SELECT rowid FROM pages WHERE pages MATCH 'arch'").fetchall()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such-folder", "-o", "index.db"], "no-such-folder"),
        (["docs/picture.png", "-o", "index.db"], ""),
        (["docs", "-o", "nowhere/index.db"], "nowhere"),
        (["-o", "index.db"], "DOCS"),
        (["docs"], "--output"),
        (["docs", "-o", "index.db", "--tokenizer", "latin"], "'latin' is not one of"),
    ],
)
def test_what_cannot_be_indexed(documents: Path, arguments: list[str], said: str) -> None:
    result = gym("env", "index", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (documents / "index.db").exists()


def test_tasks_are_generated(tmp_path: Path) -> None:
    require(find_spec("reasoning_gym"), "reasoning-gym", "pip install 'gymmesh[reasoning-gym]'")
    options = ["-d", "countdown", "-d", "spell_backward", "--count", "5", "--seed", "3"]
    first = gym("data", "generate", "reasoning-gym", *options, "--answer-tags")
    again = gym("data", "generate", "reasoning-gym", *options, "--answer-tags")
    assert first.exit_code == 0, first.stderr
    assert first.stdout == again.stdout
    rows = [json.loads(line) for line in first.stdout.splitlines()]
    kinds = [row["metadata"]["source_dataset"] for row in rows]
    assert kinds == ["countdown", "spell_backward", "countdown", "spell_backward", "countdown"]
    assert "<answer>" in rows[0]["responses_create_params"]["input"][0]["content"]
    file = tmp_path / "puzzles.jsonl"
    settings = ["--settings", '{"min_numbers": 4, "max_numbers": 4}']
    made = gym(
        "data", "generate", "reasoning-gym", "-d", "countdown", *settings, "--count", "4",
        "--output", str(file),
    )  # fmt: skip
    assert (made.exit_code, made.stdout) == (0, "")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [len(row["metadata"]["numbers"]) for row in rows] == [4] * 4
    assert gym("data", "validate", str(file)).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-d", "no_such_set"], "no dataset 'no_such_set'"),
        (["-d", "countdown", "--settings", "[]"], "must be a JSON object"),
        (["-d", "countdown", "--settings", '{"no_such_setting": 1}'], "rejects its settings"),
        (["--count", "0"], "--count"),
    ],
)
def test_what_cannot_be_generated(arguments: list[str], said: str) -> None:
    require(find_spec("reasoning_gym"), "reasoning-gym", "pip install 'gymmesh[reasoning-gym]'")
    result = gym("data", "generate", "reasoning-gym", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
