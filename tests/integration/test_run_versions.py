"""The versions of environments and verifiers belong to what a run is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from tests.support.cli import Ended, gym, rows_of

DESK: Final = '''
from gymmesh_resource import Environment
from prices import WORTH


class Desk(Environment):
    """Judges by a price list."""

    version = "1"
    verifier_version = "1"

    def verify(self, session, rollout):
        return float(rollout.answer == "4") * WORTH
'''
TASKS: Final = [
    {"task_id": f"t{at}", "responses_create_params": {"input": f"What is 2 + 2? ({at})"}}
    for at in range(4)
]
ANSWERS: Final = '{"match": "*", "answers": [{"text": "4"}]}\n'
CHANGED: Final = "the version of an environment or its verifier (desk was version 1, now version "


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # The environment's own folder can be imported from.
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    # Files that are written within a second, with as many bytes, would be run as they were before.
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    write_desk(tmp_path)
    (tmp_path / "answers.jsonl").write_text(ANSWERS)
    lines = [json.dumps(one) + "\n" for one in TASKS]
    (tmp_path / "tasks.jsonl").write_text("".join(lines))
    (tmp_path / "mesh.yaml").write_text(
        "environments: {desk: {use: 'desk.py:Desk'}}\n"
        "models: {policy: {backend: replay, path: answers.jsonl}}\n"
    )
    return tmp_path


def write_desk(folder: Path, verifier: str = "1", worth: float = 1.0) -> None:
    declared = f'verifier_version = "{verifier}"'
    (folder / "desk.py").write_text(DESK.replace('verifier_version = "1"', declared))
    (folder / "prices.py").write_text(f"WORTH = {worth}\n")


async def collect(folder: Path, *more: str, output: str = "out.jsonl") -> Ended:
    base = (
        "--config",
        "mesh.yaml",
        "--input",
        "tasks.jsonl",
        "--output",
        output,
        "--quiet",
        "--env",
        "desk",
    )
    return await gym("collect", *base, *more, cwd=folder)


async def test_another_declared_version_is_refused_until_it_is_accepted(folder: Path) -> None:
    assert (await collect(folder, "--limit", "2")).code == 0
    write_desk(folder, "2", 0.5)
    for retry in ((), ("--retry", "task=t0")):
        refused = await collect(folder, "--resume", *retry)
        assert refused.code == 1, refused.out
        assert f"{CHANGED}1 with verifier 2)" in refused.err
        assert "--accept-change environments" in refused.err
        assert len(rows_of(folder / "out.jsonl")) == 2

    taken = await collect(folder, "--resume", "--accept-change", "environments")
    assert taken.code == 0, taken.err
    assert f"gym-cli: resumed although {CHANGED}1 with verifier 2) changed" in taken.err
    assert "mixed         verdicts of desk: 2 of version 1, 2 of version 2" in taken.out
    said = json.loads((folder / "out.run.json").read_text())
    assert "resumed although" in said["sessions"][-1]["notices"][0]
    assert said["identity"]["environments"]["desk"][0]["verifier_version"] == "2"

    # It is the run's version from now on, and the profile names the mixture.
    assert (await collect(folder, "--resume")).code == 0
    profile = await gym("profile", "out.jsonl", cwd=folder)
    assert "verdicts have different versions: desk: 2 of version 1, 2 of version 2" in profile.out


async def test_an_edited_file_under_the_same_version_is_warned_of(folder: Path) -> None:
    assert (await collect(folder, "--limit", "2")).code == 0
    write_desk(folder, worth=0.5)  # a module beside it that it imports
    resumed = await collect(folder, "--resume")
    assert resumed.code == 0, resumed.err
    assert "the source of environment 'desk' changed since the run started" in resumed.err
    again = await collect(folder, "--resume")
    assert "the source of environment" not in again.err
    said = json.loads((folder / "out.run.json").read_text())
    assert "notices" not in said["sessions"][-1]


async def test_shards_of_different_versions_are_not_merged(folder: Path) -> None:
    for index in range(2):
        write_desk(folder, str(index + 1))
        options = ("--run-id", "night", "--shard", f"{index}/2")
        done = await collect(folder, *options, output=f"part-{index}.jsonl")
        assert done.code == 0, done.err
    parts = ("part-0.jsonl", "part-1.jsonl")
    refused = await gym("runs", "merge", "all.jsonl", *parts, cwd=folder)
    assert refused.code == 1
    assert "part-1.jsonl was collected with a different version of an environment" in refused.err
    assert not (folder / "all.jsonl").exists()
    accepted = ("--accept-change", "environments")
    merged = await gym("runs", "merge", "all.jsonl", *parts, *accepted, cwd=folder)
    assert merged.code == 0, merged.err
    assert "gym-cli: merged although versions differ" in merged.err
    assert len(rows_of(folder / "all.jsonl")) == 4
    said = json.loads((folder / "all.run.json").read_text())
    assert [one["verifier_version"] for one in said["identity"]["environments"]["desk"]] == [
        "1",
        "2",
    ]
