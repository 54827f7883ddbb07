"""A bundle holds what was chosen, and nothing in it is more than data."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gymmesh_cli.main import cli
from gymmesh_client import UserError
from gymmesh_view import Filters, Sort, find_sources, write_bundle
from tests.view.rows import HOSTILE, write_scene

_SCRIPT = re.compile(r"gymmeshPart\((\".*?\"), (\".*\")\);\n", re.DOTALL)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_scene(tmp_path / "rollouts.jsonl", 8)


def parts(folder: Path) -> dict[str, Any]:
    """The parts of a bundle's data, read as a browser does."""
    found = {}
    for path in (folder / "data").glob("*.js"):
        matched = _SCRIPT.fullmatch(path.read_text(encoding="ascii"))
        assert matched is not None, path
        found[json.loads(matched[1])] = json.loads(json.loads(matched[2]))
    return found


def bundle(rows: Path, folder: Path, filters: Filters | None = None, **more: Any) -> Any:
    sources = find_sources([rows]).sources
    chosen: dict[str, Any] = {"limit": 100, "index": rows.with_suffix(".sqlite")} | more
    return write_bundle(sources, folder, filters or Filters(), Sort(), **chosen)


def test_what_was_chosen_is_in_it(rows: Path, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    summary = bundle(rows, folder, Filters(environment=("sums",)))
    found = parts(folder)
    keys = [one["key"] for one in found["index"]["rollouts"]]
    assert len(keys) == summary.rollouts == 8
    assert all(key.startswith("ro-sums-") for key in keys)
    for one in found["index"]["rollouts"]:
        detail = found[str(one["part"])][one["key"]]
        assert detail["tokens"]["0.0"]["texts"]
    # Neither folders of this machine, nor what was not chosen.
    everything = json.dumps(found)
    assert str(tmp_path) not in everything
    assert "ro-shop-" not in everything


def test_nothing_of_what_was_not_chosen_is_in_it(rows: Path, tmp_path: Path) -> None:
    hidden = "q7-unreleased"
    lines = rows.read_text().splitlines()
    row = json.loads(next(line for line in lines if "ro-shop-" in line))
    row["rollout_id"] = row["task_id"] = row["environment"] = row["agent_name"] = hidden
    row["agent"] = row["response"]["model"] = row["stop_reason"] = hidden
    row["tags"] = {hidden: hidden}
    row["actors"] = [{"name": hidden, "conversations": []}]
    call = {"type": "function_call", "call_id": "c", "name": hidden, "arguments": hidden}
    row["response"]["output"].append(call)
    other = tmp_path / f"{hidden}.jsonl"
    other.write_text(json.dumps(row) + "\n" + json.dumps({"no": hidden}) + "\n")
    sources = find_sources([other, rows]).sources
    where = tmp_path / "index.sqlite"
    for number, (filters, limit) in enumerate(
        [(Filters(environment=("sums",)), 100), (Filters(task=HOSTILE), 1)]
    ):
        folder = tmp_path / f"site-{number}"
        write_bundle(sources, folder, filters, Sort(), limit=limit, index=where)
        for path in folder.rglob("*"):
            assert path.is_dir() or hidden not in path.read_text(), path
        index = parts(folder)["index"]
        for kind in ("environment", "agent", "model", "stop", "verdict"):
            names = {one[kind] for one in index["rollouts"]} - {""}
            assert set(index["facets"][kind]) == names
        assert [one["source"] for one in index["rollouts"]] == [0] * len(index["rollouts"])
        assert [one["path"] for one in index["sources"]] == [rows.name]
        for one in index["rollouts"]:
            told = parts(folder)[str(one["part"])][one["key"]]["summary"]
            assert (told["id"], told["source"]) == (one["id"], 0)


def test_a_limit_is_said(rows: Path, tmp_path: Path) -> None:
    summary = bundle(rows, tmp_path / "site", limit=3)
    assert (summary.rollouts, summary.left_out) == (3, 31)
    assert parts(tmp_path / "site")["index"]["chosen"] == 34


def test_harm_is_a_text_in_a_text(rows: Path, tmp_path: Path) -> None:
    bundle(rows, tmp_path / "site", Filters(task=HOSTILE))
    found = parts(tmp_path / "site")
    assert found["index"]["rollouts"][0]["key"] == HOSTILE
    for path in (tmp_path / "site" / "data").glob("*.js"):
        assert path.read_text().isascii()
        assert path.read_text().count("\n") == 1


def test_what_is_there_is_not_replaced_unasked(rows: Path, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    bundle(rows, folder)
    with pytest.raises(UserError, match="--overwrite"):
        bundle(rows, folder)
    bundle(rows, folder, Filters(environment=("sums",)), overwrite=True)
    assert len(parts(folder)["index"]["rollouts"]) == 8
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="is not empty"):
        bundle(rows, other, overwrite=True)
    assert [one.name for one in other.iterdir()] == ["thesis.txt"]


def test_the_command(rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYMMESH_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "site"
    command = [
        "view",
        str(rows),
        "--bundle",
        str(folder),
        "--min-reward",
        "1",
        "--tag",
        "level=hard",
    ]
    said = CliRunner().invoke(cli, command)
    assert said.exit_code == 0, said.output
    chosen = parts(folder)["index"]["rollouts"]
    assert chosen
    assert all(one["reward"] >= 1 and "level=hard" in one["tags"] for one in chosen)
    assert CliRunner().invoke(cli, ["view", str(tmp_path / "none")]).exit_code == 1
    command = ["view", str(rows), "--bundle", str(tmp_path / "x"), "--min-reward", "high"]
    said = CliRunner().invoke(cli, command)
    assert (said.exit_code, "min_reward: must be a number" in said.output) == (1, True)


def test_a_file_without_rollouts_is_refused(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"task_id": "a", "responses_create_params": {"input": "Hi?"}}\n')
    said = CliRunner().invoke(cli, ["view", str(tasks), "--no-browser"])
    assert said.exit_code == 1
    shown = CliRunner().invoke(cli, ["show", str(tasks)])
    (told,) = [line for line in said.output.splitlines() if "tasks.jsonl:1: response" in line]
    assert told in shown.output


def test_a_file_that_may_still_get_rollouts_is_shown(rows: Path, tmp_path: Path) -> None:
    empty, damaged = tmp_path / "empty.jsonl", tmp_path / "damaged.jsonl"
    empty.touch()
    damaged.write_bytes(b'{"a": \n' + rows.read_bytes())
    for path in (empty, damaged):
        assert [one.path for one in find_sources([path]).sources] == [path]


@pytest.mark.parametrize("option", [("--limit", "3"), ("--outcome", "failed"), ("--overwrite",)])
def test_an_option_of_bundles_needs_one(rows: Path, option: tuple[str, ...]) -> None:
    said = CliRunner().invoke(cli, ["view", str(rows), "--no-browser", *option])
    assert said.exit_code == 2
    assert f"{option[0]} needs --bundle DIR" in said.output


def test_a_run_that_does_not_go_on_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYMMESH_RUNTIME_DIR", str(tmp_path))
    said = CliRunner().invoke(cli, ["view", "--run", "live"])
    assert said.exit_code == 1
    assert "no run in progress has this id" in said.output
