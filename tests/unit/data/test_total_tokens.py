"""Figures of tokens count all calls of an agent, whichever conversation they belong to."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import Tally, completed_row, fold
from gymmesh_client.collector.order import length_from
from gymmesh_client.index.rows import COLUMNS, columns_of
from gymmesh_client.rollout import RolloutParts
from gymmesh_client.rows import completed_line
from gymmesh_data import export, stored_rollout
from gymmesh_data.profile import profile
from gymmesh_view.rows.summary import Summary
from tests.support.rollouts import answer, completed, make_events, make_task, verdict
from tests.unit.data.rows import read_records, row, text, write_rows

TASK = make_task()
#: Each call reads 10 tokens and writes 3: two of the main conversation, a sub-agent's and a title.
CALLS, READ, WROTE = 4, 40, 12


def call(number: int, parent: int = 0, actor: str = "", side_call: str = "") -> pb.RolloutEvent:
    event = answer(f"say {number}", f"c{number}")
    made = event.model_call_completed
    made.parent_call_id = f"c{parent}" if parent else ""
    made.actor, made.side_call = actor, side_call
    made.detached, made.trainable = not parent, not side_call
    made.response.usage.total_tokens = 13
    made.response.usage.cached_tokens = 4
    return event


@pytest.fixture
def rollout() -> pb.Rollout:
    calls = (call(1), call(2, 0, "title", "title"), call(3, 0, "subagent-1"), call(4, 1))
    assert len(calls) == CALLS
    return fold(make_events("ro", 1, *calls, verdict(1.0), completed(), task=TASK), "ro")


def test_the_row_has_those_of_each_conversation_apart(rollout: pb.Rollout) -> None:
    made: Any = completed_row(TASK, rollout)
    assert made["response"]["usage"]["input_tokens"] == 20
    assert [one["usage"]["input_tokens"] for one in made["actors"]] == [10, 10]


def test_a_summary_has_those_of_all(rollout: pb.Rollout) -> None:
    line, counted = completed_line(TASK, RolloutParts.of(rollout))
    tally, again = Tally(), Tally()
    tally.add(counted)
    again.add_row(json.loads(line), kept=True)  # as --resume does
    for one in (tally, again):
        assert (one.input_tokens, one.output_tokens) == (READ, WROTE)


def test_an_index_a_page_and_a_profile_have_those_of_all(
    rollout: pb.Rollout, tmp_path: Path
) -> None:
    line, _ = completed_line(TASK, RolloutParts.of(rollout))
    assert dict(zip(COLUMNS, columns_of(line), strict=True))["tokens"] == READ + WROTE
    with closing(sqlite3.connect(":memory:")) as database:  # what SQLite can hold, and no more
        huge: Any = json.loads(line)
        for one in (huge["response"], *huge["actors"]):
            one["usage"]["total_tokens"] = (1 << 63) - 1
        found = dict(zip(COLUMNS, columns_of(json.dumps(huge).encode()), strict=True))
        assert database.execute("SELECT ?", [found["tokens"]]).fetchone() == ((1 << 63) - 1,)
    shown = Summary(stored_rollout(json.loads(line), "here"))
    assert (shown.input_tokens, shown.output_tokens) == (READ, WROTE)
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(line + b"\n")
    tokens = profile([rows]).to_dict()["tokens"]
    assert {name: one["mean"] for name, one in tokens.items()} == {
        "input": READ, "cached": 4 * CALLS, "output": WROTE, "reasoning": 0,
    }  # fmt: skip


def test_exports_have_those_of_all(rollout: pb.Rollout, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    rows = write_rows(tmp_path / "rows.jsonl", [completed_row(TASK, rollout)])
    export([rows], tmp_path / "out.parquet", "parquet")
    (record,) = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert (record["input_tokens"], record["output_tokens"]) == (READ, WROTE)
    export([rows], tmp_path / "out.jsonl", "otel")
    (record,) = read_records(tmp_path / "out.jsonl")
    spans = [
        span
        for each in record["resourceSpans"]
        for scope in each["scopeSpans"]
        for span in scope["spans"]
    ]
    (root,) = [one for one in spans if one["name"].startswith("invoke_agent")]
    told = {one["key"]: one["value"] for one in root["attributes"]}
    assert told["gen_ai.usage.input_tokens"] == {"intValue": str(READ)}
    assert told["gen_ai.usage.output_tokens"] == {"intValue": str(WROTE)}


def test_the_longest_tasks_are_those_with_most_tokens_in_all(rollout: pb.Rollout) -> None:
    assert length_from([completed_row(TASK, rollout)])(TASK) == WROTE


def test_rows_that_say_nothing_of_tokens_have_none() -> None:
    actor = {"name": "critic", "trainable": False, "conversations": [{"items": [text("so")]}]}
    assert stored_rollout(row(text("5"), actors=[actor]), "here").total_usage == {}
