"""A rollout file whose texts have no end: what is printed of them has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from google.rpc import status_pb2

from gymmesh_cli.main import cli
from gymmesh_client.rows.row import status_dict
from gymmesh_client.summary import Tally, render, summarize
from gymmesh_runtime.errors import from_status
from tests.unit.data.rows import row, text, write_rows

HUGE = "A" * 1_000_000


def broken(**failure: Any) -> dict[str, Any]:
    told = {"boundary": "MODEL", "component": "policy", "retry_safe": False}
    status = {"code": 13, "reason": "INTERNAL_FAULT", "message": "it broke", "metadata": {}}
    status |= {key: failure.pop(key) for key in ("reason", "message") if key in failure}
    made = row(text("4"), failure=told | failure | {"status": status})
    del made["reward"], made["stop_reason"]
    return made


@pytest.mark.parametrize(
    "made",
    [
        broken(boundary=HUGE),
        broken(component=HUGE),
        broken(reason=HUGE),
        broken(message=HUGE),
        row(text("4"), stop_reason=HUGE),
        row(text("4"), stop_detail=HUGE),
        row(text("4"), verification={"status": "VERIFIED", "reason": HUGE}),
    ],
    ids=["boundary", "component", "reason", "message", "stop", "detail", "verdict"],
)
@pytest.mark.parametrize("command", ["profile", "show"])
def test_what_is_printed_of_a_file_is_short(
    made: dict[str, Any], command: str, tmp_path: Path
) -> None:
    file = write_rows(tmp_path / "rows.jsonl", [made, row(text("4"), task="b")])
    said = CliRunner().invoke(cli, [command, str(file)])
    assert said.exit_code == 0, said.output[:1000]
    assert len(said.output) < 30_000


def test_a_summary_is_short_whatever_failures_are_called() -> None:
    tally = Tally()
    for number in range(1000):
        tally.add_failure(broken(reason=f"{number}{HUGE[:1000]}", message=HUGE))
    summary = summarize(
        tally, requested=1000, wall_s=1.0, repeats=1, output="o", failures_output="f"
    )
    said = render(summary)
    assert "and 988 other causes" in said
    assert len(said) < 10_000
    assert len(tally.first_failure) < 2_000


def test_a_stranger_s_status_is_cut_and_no_crash() -> None:
    status = status_pb2.Status(code=13, message=HUGE)
    detail = status.details.add()
    detail.type_url, detail.value = "type.googleapis.com/google.rpc.ErrorInfo", b"\xff\xff"
    assert len(from_status(status).message) == 2000
    assert status_dict(status)["reason"] == ""
