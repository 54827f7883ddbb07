"""What the page is answered of a task, of tool errors, and of tokens with a vocabulary."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gymmesh_view import Filters, Sort, find_sources, write_bundle
from gymmesh_view.index import Indexer, Store
from gymmesh_view.reading import Reading
from gymmesh_view.vocabulary import read_vocabulary
from tests.view.desk import TASK, write_desk, write_tokenizer

_KEY = "ro-desk-1-1"


@contextmanager
def reading(rows: Path, tokenizer: Path | None = None) -> Iterator[Reading]:
    """What answers the page of a file of rows."""
    sources = find_sources([rows]).sources
    index = rows.with_suffix(".sqlite")
    indexer = Indexer(sources, index)
    indexer.prepare()
    indexer.run_once()
    with closing(Store(index)) as store:
        yield Reading(store, sources, read_vocabulary(tokenizer) if tokenizer else None)
    indexer.stop()


def test_repeats_of_a_merged_file_are_apart_by_their_runs(tmp_path: Path) -> None:
    with reading(write_desk(tmp_path / "one.jsonl")) as asked:
        assert [(row["run_id"], row["repeat"]) for row in asked.task(TASK)] == [("", 0), ("", 1)]
    with reading(write_desk(tmp_path / "merged.jsonl", ("night", "day"))) as asked:
        found = [(row["run_id"], row["repeat"]) for row in asked.task(TASK)]
    assert found == [("day", 0), ("day", 1), ("night", 0), ("night", 1)]


def test_a_tool_result_says_that_it_is_an_error(tmp_path: Path) -> None:
    with reading(write_desk(tmp_path / "rows.jsonl")) as asked:
        items = asked.rollout(_KEY)["items"]
        results = [one.get("error") for one in items if one["kind"] == "result"]
        assert results == ["TOOL_ERROR", "BAD_ARGUMENTS", "UNKNOWN_TOOL"]
        assert not any(one.get("error") for one in items if one["kind"] != "result")
        fine = asked.rollout("ro-desk-1-0")["items"]
        assert not any("error" in one for one in fine)


def test_an_id_that_is_used_again_is_an_error_only_where_it_was_one(tmp_path: Path) -> None:
    path = write_desk(tmp_path / "rows.jsonl")
    row = json.loads(path.read_text().splitlines()[1])
    for item in row["response"]["output"]:
        if "call_id" in item:
            item["call_id"] = "f"
    for number, call in enumerate(row["tool_calls"]):
        call |= {"call_id": "f", "outcome": ("OK", "TOOL_ERROR", "OK")[number]}
    path.write_text(json.dumps(row) + "\n")
    with reading(path) as asked:
        items = asked.rollout(_KEY)["items"]
    assert [one.get("error") for one in items if one["kind"] == "result"] == [
        None, "TOOL_ERROR", None,
    ]  # fmt: skip


@pytest.mark.parametrize("beside", [True, False])
def test_tokens_are_text_where_a_vocabulary_is_at_hand(tmp_path: Path, beside: bool) -> None:
    rows = write_desk(tmp_path / "rows.jsonl")
    elsewhere = tmp_path if beside else tmp_path / "model"
    elsewhere.mkdir(exist_ok=True)
    tokenizer = write_tokenizer(elsewhere / "tokenizer.json")
    with reading(rows, None if beside else tokenizer) as asked:
        found = asked.tokens(_KEY, 3)
    assert "".join(found["texts"]) == "I can\u2019t find the ticket.<|end|>"
    assert (found["tokenizer"], found["problem"]) == ("tokenizer.json", "")


def test_it_is_said_why_tokens_are_no_text(tmp_path: Path) -> None:
    rows = write_desk(tmp_path / "rows.jsonl")
    with reading(rows) as asked:
        found = asked.tokens(_KEY, 3)
        assert found["texts"] is None
        assert "--tokenizer PATH" in found["problem"]
        (tmp_path / "tokenizer.json").write_text("{")
        found = asked.tokens(_KEY, 3)
        assert found["texts"] is None
        assert found["problem"].startswith("tokenizer.json cannot be read as a tokenizer.json")
        # Once it is put right, no restart is needed.
        write_tokenizer(tmp_path / "tokenizer.json")
        assert asked.tokens(_KEY, 3)["texts"]


def test_the_vocabulary_of_another_model_is_doubted(tmp_path: Path) -> None:
    rows = write_desk(tmp_path / "rows.jsonl")
    other = {"type": "BPE", "vocab": {f"w{number}": number for number in range(400)}}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": other}))
    with reading(rows) as asked:
        found = asked.tokens(_KEY, 3)
        assert "does not contain the answer" in found["problem"]
        other["vocab"] = {"a": 0}
        (tmp_path / "few.json").write_text(json.dumps({"model": other}))
    with reading(rows, tmp_path / "few.json") as asked:
        found = asked.tokens(_KEY, 3)
        assert "few.json has no text for 11 of 11 ids" in found["problem"]


def test_a_bundle_has_the_text_of_tokens_and_no_folder(tmp_path: Path) -> None:
    rows = write_desk(tmp_path / "rows.jsonl")
    folder = tmp_path / "site"
    for broken in (False, True):
        tokenizer = write_tokenizer(tmp_path / "tokenizer.json")
        if broken:
            tokenizer.write_text("{")
        write_bundle(
            find_sources([rows]).sources, folder, Filters(), Sort(),
            limit=10, overwrite=True, index=tmp_path / "index.sqlite",
        )  # fmt: skip
        data = "".join(path.read_text() for path in (folder / "data").glob("*.js"))
        assert ("<|end|>" in data) is not broken
        assert str(tmp_path) not in data
