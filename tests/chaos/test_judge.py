"""Each law of the judge can be broken: a good run's files are spoiled, one way at a time."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.folder import Folder
from tests.chaos.judge import judge
from tests.chaos.plan import COLLECTOR, ENDPOINT, Fault
from tests.chaos.seed import run_seed
from tests.chaos.test_quick import WITHIN_S, shown, small


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a kill and failed rollouts: those of a storm have one attempt.

    It comes at once, while the first rollouts run for certain, however busy the machine is.
    """
    path = tmp_path_factory.mktemp("good")
    schedule = [Fault(0.0, "500", ENDPOINT, 3.0, 1.0), Fault(1.5, "kill", COLLECTOR)]
    world = small(tasks=16, attempts=1)
    result = asyncio.run(run_seed(world, schedule, path, within_s=WITHIN_S))
    assert result.violations == [], shown(result)
    assert result.verdict["failed"] > 0
    assert result.verdict["completed"] > 0
    return path


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines(keepends=True)


def change(path: Path, name: str, edit: Callable[[Any], object]) -> None:
    """Edit a JSON file in its place."""
    folder = Folder(path)
    value = folder.read(name)
    edit(value)
    folder.write(name, value)


def lose_a_row(path: Path) -> None:
    rows = path / "out" / "out.jsonl"
    rows.write_text("".join(lines(rows)[:-1]))


def double_a_row(path: Path) -> None:
    rows = path / "out" / "out.jsonl"
    rows.write_text("".join([*lines(rows), lines(rows)[0]]))


def ask_for_less(path: Path) -> None:
    change(path, "asked.json", lambda asked: asked["tasks"].pop("till-0"))


def fabricate_a_reward(path: Path) -> None:
    rows = path / "out" / "out.jsonl"
    # Of the same length, as an edit in place would be.
    rows.write_text(rows.read_text().replace('"reward":1.0', '"reward":0.0'))


def change_a_finished_byte(path: Path) -> None:
    rows = path / "out" / "out.jsonl"
    data = rows.read_bytes()
    rows.write_bytes(data.replace(b"ring up", b"ring Up", 1))


def reward_a_failure(path: Path) -> None:
    rows = path / "out" / "out.failures.jsonl"
    first, *others = [json.loads(line) for line in lines(rows)]
    first["reward"] = 0.0
    rows.write_text("".join(json.dumps(row) + "\n" for row in (first, *others)))


def acknowledge_another(path: Path) -> None:
    ack = {"what": "stored", "rollout": "ro-nobody-0", "attempt": 1, "at": 0.0}
    with (path / "acks.jsonl").open("a") as file:
        file.write(json.dumps(ack) + "\n")


def wait_too_long(path: Path) -> None:
    acks = path / "acks.jsonl"
    said = [json.loads(line) for line in lines(acks)]
    late = next(one for one in said if one["what"] == "ended")
    late["at"] += 40.0
    acks.write_text("".join(json.dumps(one) + "\n" for one in said))


def leave_a_session(path: Path) -> None:
    change(path, "after.json", lambda after: after.update({"till: gymmesh_sessions_open": 1.0}))


def end_in_a_traceback(path: Path) -> None:
    def spoil(sessions: list[dict[str, Any]]) -> None:
        sessions[0] |= {"ended_by": "", "code": 1, "stderr": ["Traceback (most recent call last):"]}

    change(path, "sessions.json", spoil)


def never_end(path: Path) -> None:
    change(path, "sessions.json", lambda sessions: sessions[-1].update(ended_by="the harness"))


def tear_the_journal(path: Path) -> None:
    journal = path / "out" / "out.journal"
    journal.write_bytes(journal.read_bytes()[:-5])


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lose_a_row, "outcomes: "),
        (double_a_row, "has 2 outcomes"),
        (ask_for_less, "was not requested"),
        (fabricate_a_reward, "rewards: "),
        (change_a_finished_byte, "checksum differs from the checksum in the journal"),
        (change_a_finished_byte, "resume: "),
        (reward_a_failure, "failed, but the row has ['reward']"),
        (acknowledge_another, "was acknowledged, but is not on disk"),
        (wait_too_long, "waits: "),
        (leave_a_session, "left over: "),
        (end_in_a_traceback, "collectors: collector process 0 printed a traceback"),
        (never_end, "the run did not end within its time limit"),
        (tear_the_journal, "does not record the end of the run"),
    ],
)
def test_what_is_spoiled_is_found(
    spoil: Callable[[Path], None], found: str, good: Path, tmp_path: Path
) -> None:
    path = tmp_path / "copy"
    shutil.copytree(good, path)
    assert judge(Folder(path))["violations"] == []
    spoil(path)
    violations = judge(Folder(path))["violations"]
    assert any(found in one for one in violations), violations
