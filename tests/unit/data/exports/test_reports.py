"""What an export says of rollouts, tasks and tokens that are not in its records."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from gymmesh_client import UserError
from gymmesh_data import ExportOptions, export, export_hub, read_rollouts
from tests.unit.data.rows import read_records, row, text, write_rows
from tests.unit.data.test_samples import agents_calls

Json = dict[str, Any]
BROKEN = "token ids that do not form one sequence"
UNKNOWN = "log probabilities of samples (unknown for at least one token)"


def exported(tmp_path: Path, name: str, rows: list[Json]) -> tuple[Path, Json]:
    source = write_rows(tmp_path / "rows.jsonl", rows)
    out = tmp_path / f"out.{name}"
    return out, export([source], out, name, ExportOptions(), overwrite=True).to_dict()


def sampled(*logprobs: float | None, **more: Any) -> Json:
    ids = {"prompt_token_ids": [1], "generation_token_ids": [2, 3]}
    return row(text("5", **ids, generation_log_probs=list(logprobs)), **more)


@pytest.mark.parametrize("name", ["tokens", "messages", "parquet"])
def test_log_probabilities_that_are_missing_are_reported(tmp_path: Path, name: str) -> None:
    rows = [sampled(-0.5, None), sampled(repeat=1), sampled(-0.5, -0.25, repeat=2)]
    _, summary = exported(tmp_path, name, rows)
    assert summary["losses"] == {UNKNOWN: 2}


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("tokens", "left_out"),
        *((name, "losses") for name in ("messages", "parquet", "inspect")),
        *((name, "losses") for name in ("nemo-gym", "atif", "otel")),
    ],
)
def test_token_ids_that_do_not_fit_have_one_reason(tmp_path: Path, name: str, where: str) -> None:
    # The second call goes on from three tokens more than there are.
    stored = agents_calls(("", True, 0, [1, 2], [3]), ("c0", False, 6, [4], [5]))
    _, summary = exported(tmp_path, name, [json.loads(stored.columns.line)])
    assert summary[where][BROKEN] == 1


def test_the_text_that_is_missing_is_told_from_missing_tokens(tmp_path: Path) -> None:
    stored = agents_calls(("", True, 0, [1, 2], [3]), ("c0", True, 0, [1, 7], [8]))
    rows = [json.loads(stored.columns.line)]
    text_only = "text of conversations that the agent abandoned (their tokens are exported)"
    both = "conversations that the agent abandoned, for example after a summary"
    for name in ("messages", "parquet", "inspect"):
        losses = exported(tmp_path, name, rows)[1]["losses"]
        assert losses[text_only] == 1, name
        assert both not in losses
    for name in ("atif", "nemo-gym", "otel", "sft"):
        losses = exported(tmp_path, name, rows)[1]["losses"]
        assert losses[both] == 1, name
        assert text_only not in losses


@pytest.mark.parametrize("name", ["trl", "verl", "nemo-rl", "openrlhf"])
def test_tasks_whose_rollouts_all_failed_are_counted(tmp_path: Path, name: str) -> None:
    failure = {"reason": "MODEL_TIMEOUT"}
    rows = [
        row(text("5"), task="a"),
        row(text("5"), task="b", failure=failure),
        row(text("5"), task="b", repeat=1, failure=failure),
        row(text("5"), task="a", repeat=1, failure=failure),
    ]
    write_rows(tmp_path / "rows.failures.jsonl", [row(task="c", failure=failure)])
    out, summary = exported(tmp_path, name, rows)
    assert len(read_records(out)) == 1
    assert summary["left_out"] == {
        "failed rollouts": 3,
        "tasks without a completed rollout": 2,
    }


def test_samples_of_rows_without_an_id_are_told_apart(tmp_path: Path) -> None:
    rows = [sampled(-0.5, -0.5), sampled(-0.5, -0.5)]
    for one in rows:
        del one["rollout_id"]
    out, _ = exported(tmp_path, "tokens", rows)
    source = tmp_path / "rows.jsonl"
    assert [one["rollout_id"] for one in read_records(out)] == [f"{source}:1", f"{source}:2"]


def test_a_shard_names_the_output_of_its_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "z.journal").touch()
    packed = tmp_path / "z-00000.jsonl.zst"
    packed.write_bytes(b"\x28\xb5\x2f\xfd")
    with pytest.raises(UserError, match=r"one shard of a run. Pass the run's --output: .*z\.jsonl"):
        list(read_rollouts([packed]))
    assert not caplog.records
    plain = write_rows(tmp_path / "z-00001.jsonl", [row(text("5"))])
    with caplog.at_level(logging.WARNING):
        assert len(list(read_rollouts([plain]))) == 1
    assert "pass the run's output instead" in caplog.text
    assert "missing" not in caplog.text


def test_a_name_that_only_shares_a_journal_is_named_as_typed(tmp_path: Path) -> None:
    (tmp_path / "y.journal").touch()
    (tmp_path / "y.jsonl.zst").touch()
    with pytest.raises(UserError, match=r"/y: does not exist. Pass .*/y\.jsonl$"):
        list(read_rollouts([tmp_path / "y"]))


def test_a_foreign_file_in_a_folder_is_named(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "rows.jsonl", [row(text("5"))])
    out = tmp_path / "hub"
    export_hub([source], out)
    with pytest.raises(UserError, match="replace it with --overwrite"):
        export_hub([source], out)
    export_hub([source], out, overwrite=True)
    (out / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"\(notes\.txt\), so --overwrite does not replace"):
        export_hub([source], out, overwrite=True)
