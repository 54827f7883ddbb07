"""How tool calls were answered, as the readers of rows have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gymmesh_data import export, stored_rollout, task_of
from gymmesh_data.profile.totals import ToolTotals, totals_of
from tests.unit.data.rows import call, read_records, result, row, text, write_rows

TOOLS = {"tools": [{"type": "function", "name": "add"}, {"type": "function", "name": "pay"}]}


def outcome(name: str, said: str, calls: int) -> dict[str, Any]:
    return {"name": name, "outcome": said, "calls": calls}


def calls_of(*outcomes: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A row in which `add` was called twice, rightly as far as the conversation tells."""
    metadata: dict[str, Any] = {"metadata": {"tool_outcomes": list(outcomes)}} if outcomes else {}
    spoken = [call("add", "{}", "c1"), result("c1", "?"), call("add", "{}", "c2")]
    return row(*spoken, text("5"), params=TOOLS, **metadata, **more)


def tools(folder: Path, *rows: dict[str, Any]) -> dict[str, ToolTotals]:
    path = write_rows(folder / "rows.jsonl", rows)
    return totals_of([path], 1.0).tools


def test_failing_tools_are_told_from_others(tmp_path: Path) -> None:
    found = tools(
        tmp_path,
        calls_of(outcome("add", "OK", 1), outcome("add", "TOOL_ERROR", 1)),
        calls_of(outcome("add", "BAD_ARGUMENTS", 1), outcome("ad", "UNKNOWN_TOOL", 2), repeat=1),
    )
    assert found["add"] == ToolTotals(calls=4, invalid=1, errors=1, known=3, rollouts=2)
    assert found["ad"] == ToolTotals(calls=2, invalid=2, errors=0, known=2, rollouts=1)
    assert found["add"].errors_text == "1"


def test_calls_of_other_actors_count_and_those_not_answered_are_not_known(tmp_path: Path) -> None:
    found = tools(
        tmp_path,
        calls_of(
            outcome("add", "OK", 5),
            outcome("pay", "TOOL_ERROR", 3),
            outcome("pay", "UNSPECIFIED", 1),
        ),
    )
    assert found["add"] == ToolTotals(calls=5, known=5, rollouts=1)
    assert found["pay"] == ToolTotals(calls=3, errors=3, known=3, rollouts=1)


def test_rows_that_do_not_say_it_still_read(tmp_path: Path) -> None:
    odd: Any = [7, {"name": "add"}, {"name": "add", "outcome": "OK", "calls": "two"}]
    found = tools(tmp_path, calls_of(), calls_of(*odd, repeat=1))
    assert found["add"] == ToolTotals(calls=4, rollouts=2)
    assert found["add"].errors_text == "not known"


def test_exports_have_them_and_tasks_do_not(tmp_path: Path) -> None:
    outcomes = [outcome("add", "OK", 2)]
    made = calls_of(*outcomes)
    rows = write_rows(tmp_path / "rows.jsonl", [made, calls_of(repeat=1)])
    export([rows], tmp_path / "out", "messages")
    first, second = read_records(tmp_path / "out")
    assert first["metadata"]["tool_outcomes"] == outcomes
    assert "tool_outcomes" not in second["metadata"]
    assert "metadata" not in task_of(stored_rollout(made, "rows.jsonl:1"))
