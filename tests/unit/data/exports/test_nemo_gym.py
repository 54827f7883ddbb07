"""Rows in NeMo Gym's form, of rows as a collector writes them now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from gymmesh_cli.main import cli
from gymmesh_responses import dumps
from gymmesh_rows import nemo_row, read_row

ROWS = json.loads((Path(__file__).parents[3] / "contract" / "vectors" / "rows.json").read_text())[
    "rows"
]


def exported(folder: Path, name: str, *options: str) -> list[dict[str, Any]]:
    row = next(one["row"] for one in ROWS if one["fold_vector"] == name)
    source, target = folder / "rollouts.jsonl", folder / "rows.jsonl"
    source.write_bytes(dumps(row) + b"\n")
    arguments = ["export", str(source), "--format", "nemo-gym", "-o", str(target), *options]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in target.read_text().splitlines()]


def test_tokens_stand_whole_with_the_items(tmp_path: Path) -> None:
    (made,) = exported(tmp_path, "actors")
    source = next(one["row"] for one in ROWS if one["fold_vector"] == "actors")
    assert made == nemo_row(read_row(dumps(source)))
    first, _, last = made["response"]["output"]
    assert last["prompt_token_ids"][:4] == first["prompt_token_ids"] + first["generation_token_ids"]
    assert "calls" not in made


def test_the_sessions_state_is_left_out_and_tokens_when_asked(tmp_path: Path) -> None:
    (made,) = exported(tmp_path, "kept_state")
    assert "final_state" not in made
    (bare,) = exported(tmp_path, "learned", "--no-tokens", "--overwrite")
    assert "token_ids" not in json.dumps(bare)
