"""The plain loops that exports are measured against do an export's work."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from gymmesh_data import export
from tests.scale.bench_export import CASES, row_of
from tests.scale.export_loops import LOOPS


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"".join(orjson.dumps(row_of(one)) + b"\n" for one in range(40)))
    return path


@pytest.mark.parametrize("name", [one for one in LOOPS if one != "copy"])
def test_a_loop_writes_what_the_export_writes(rows: Path, tmp_path: Path, name: str) -> None:
    by_hand, exported = tmp_path / "by_hand", tmp_path / "exported"
    LOOPS[name](rows, by_hand)
    summary = export([rows], exported, name, CASES[name])
    assert summary.records > 10
    if name == "parquet":
        import pyarrow.parquet

        found, made = (pyarrow.parquet.read_table(one) for one in (by_hand, exported))
        assert found.to_pylist() == made.to_pylist()
    else:
        assert by_hand.read_bytes() == exported.read_bytes()


def test_copying_changes_nothing(rows: Path, tmp_path: Path) -> None:
    LOOPS["copy"](rows, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == rows.read_bytes()
