"""What formats with whole rollouts write of one is linear in its calls, and has every token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gymmesh_cli.main import cli
from gymmesh_client import Fold
from gymmesh_client.rows import completed_line
from gymmesh_rows import read_row
from tests.scale.bench_rows import events_of
from tests.support.rollouts import make_task

Json = dict[str, Any]


def line_of(calls: int) -> bytes:
    state = Fold("ro-1", 1, "run-1", "t-1")
    for event in events_of(calls):
        state.add(event)
    return completed_line(make_task(), state.parts())[0]


def exported(folder: Path, line: bytes, name: str) -> tuple[int, Json]:
    source, target = folder / "rollouts.jsonl", folder / "out.jsonl"
    source.write_bytes(line + b"\n")
    arguments = ["export", str(source), "--format", name, "-o", str(target), "--overwrite"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    return target.stat().st_size, json.loads(target.read_bytes())


def of_atif(record: Json) -> list[tuple[int, list[int], list[int]]]:
    found = []
    for step in record["steps"]:
        if metrics := step.get("metrics"):
            extra = metrics.get("extra", {})
            added = metrics.get("prompt_token_ids", extra.get("added_prompt_token_ids"))
            prefix = extra.get("prompt_prefix_tokens", 0)
            assert metrics["prompt_tokens"] == prefix + len(added)
            found.append((prefix, added, metrics["completion_token_ids"]))
    return found


def of_otel(record: Json) -> list[tuple[int, list[int], list[int]]]:
    found = []
    for span in record["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        told = {one["key"]: one["value"] for one in span["attributes"]}
        if "gymmesh.generation_token_ids" in told:
            prefix = int(told["gymmesh.prompt_prefix_tokens"]["intValue"])
            added, sampled = (
                json.loads(told[f"gymmesh.{key}_token_ids"]["stringValue"])
                for key in ("prompt", "generation")
            )
            found.append((prefix, added, sampled))
    return found


@pytest.mark.parametrize(("name", "read"), [("atif", of_atif), ("otel", of_otel)])
def test_what_is_written_is_linear_and_has_every_token(
    tmp_path: Path, name: str, read: Any
) -> None:
    small, _ = exported(tmp_path, line_of(20), name)
    line = line_of(160)
    large, record = exported(tmp_path, line, name)
    assert large < 1.05 * small * 160 / 20
    row, known = read_row(line), list[int]()
    found = read(record)
    assert len(found) == 160
    for call, (prefix, added, sampled) in zip(row.calls, found, strict=True):
        prompt = known[:prefix] + added
        whole = row.prompt(call)
        assert whole is not None
        assert prompt == whole.tolist()
        known = prompt + sampled
