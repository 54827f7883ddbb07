"""Looking rollouts up: the index, its staleness, and runs that are going on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_client import UserError, open_run
from gymmesh_client.journal import index
from gymmesh_client.journal.index import (
    _ENTRY,
    CURRENT,
    SUPERSEDED_OUTCOME,
    _sorted,
    _unpack,
)
from gymmesh_client.journal.keys import rollout_id, rollout_key
from gymmesh_client.journal.layout import OutputFiles
from gymmesh_client.journal.records import (
    COMPLETED,
    FAILED,
    NEW_VERIFICATION,
    PLACE_BYTES,
    BadRecord,
    Outcome,
)
from gymmesh_client.journal.store import Journal, NewOutcome, Replace


def name(number: int) -> str:
    return rollout_id("r", f"t-{number}", 0)


def new(number: int, text: str = "", status: int = COMPLETED) -> NewOutcome:
    row = json.dumps({"rollout_id": name(number), "text": text}).encode()
    return NewOutcome(rollout_key(name(number)), 1, status, 0, row)


def begun(folder: Path, **layout: Any) -> tuple[OutputFiles, Journal]:
    files = OutputFiles(folder / "out.jsonl", **layout)
    info = {"run_id": "r", "shard_rows": files.shard_rows, "zstd": files.compressed, "repeats": 1}
    return files, Journal.create(files, info)


@pytest.mark.parametrize("layout", [{}, {"shard_rows": 40}, {"zstd": True}])
def test_every_rollout_is_found(tmp_path: Path, layout: dict[str, Any]) -> None:
    files, journal = begun(tmp_path, **layout)
    for first in range(0, 300, 25):
        journal.commit([new(number, "x" * number) for number in range(first, first + 25)])
    journal.close()
    with open_run(files.rows) as run:
        for number in range(300):
            row = run.get_rollout(name(number))
            assert row is not None
            assert row["text"] == "x" * number
        assert run.get_rollout(name(300)) is None
        assert run.get("t-7") == run.get_rollout(name(7))
        assert [len(row["text"]) for row in run.rows()] == list(range(300))
        assert (run.task_rollouts("t-9"), run.task_rollouts("t-999")) == ([name(9)], [])
    assert files.index.exists()


def test_the_index_is_made_anew_when_it_is_stale_or_damaged(tmp_path: Path) -> None:
    files, journal = begun(tmp_path)
    journal.commit([new(1)])
    with open_run(files.rows) as run:
        assert (run.completed, run.line(name(2))) == (1, None)
    first = files.index.read_bytes()
    with open_run(files.rows):
        assert files.index.read_bytes() == first
    journal.commit([new(2, status=FAILED)])  # the run is going on
    with open_run(files.rows) as run:
        assert (run.completed, run.failed) == (1, 1)
        assert [row["rollout_id"] for row in run.failures()] == [name(2)]
    for damaged in (b"", b"nonsense", files.index.read_bytes()[:-5], first):
        files.index.write_bytes(damaged)
        with open_run(files.rows) as run:
            assert run.line(name(2)) is not None
    journal.close()


def test_a_torn_tail_is_left_alone_by_readers(tmp_path: Path) -> None:
    files, journal = begun(tmp_path)
    journal.commit([new(1)])
    whole = files.journal.stat().st_size
    journal.commit([new(2)])
    journal.close()
    torn = files.journal.read_bytes()[: whole + 9]
    files.journal.write_bytes(torn)
    with open_run(files.rows) as run:
        assert [row["rollout_id"] for row in run.rows()] == [name(1)]
        assert run.line(name(2)) is None
    assert files.journal.read_bytes() == torn


@pytest.mark.parametrize("zstd", [False, True])
def test_a_new_verdict_takes_the_place_of_the_old_one(tmp_path: Path, zstd: bool) -> None:
    files, journal = begun(tmp_path, zstd=zstd)
    journal.commit([new(1, "pending"), new(2, "other")])
    (old,) = [
        one
        for one in journal.outcomes()
        if isinstance(one, Outcome) and one.key == rollout_key(name(1))
    ]
    journal.commit([Replace(old, NEW_VERIFICATION, new(1, "judged"))])
    for _ in range(2):  # before the old row is gone from its file, and then
        with open_run(files.rows) as run:
            assert sorted(row["text"] for row in run.rows()) == ["judged", "other"]
            assert [(one.superseded, one.current) for one in run.attempts(name(1))] == [
                ("a new verification", False),
                ("", True),
            ]
            assert b'"pending"' in (run.attempts(name(1))[0].row or b"")
        journal.erase()
    journal.close()


def test_a_damaged_row_is_told(tmp_path: Path) -> None:
    files, journal = begun(tmp_path)
    journal.commit([new(1, "abc")])
    journal.close()
    files.rows.write_bytes(files.rows.read_bytes().replace(b"abc", b"abd"))
    with (
        open_run(files.rows) as run,
        pytest.raises(UserError, match=r"out\.jsonl: the row at byte 0 is damaged"),
    ):
        run.get_rollout(name(1))


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"out\.journal: is missing"):
        open_run(tmp_path / "out.jsonl")


def test_hands_that_overflow_are_dealt_to_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_HELD_BYTES", 2000)
    files, journal = begun(tmp_path)
    journal.commit([new(number) for number in range(3000)])
    journal.close()
    with open_run(files.rows) as run:
        assert all(run.line(name(number)) is not None for number in range(3000))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "out.index",
        "out.journal",
        "out.jsonl",
    ]


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30))
def test_a_hand_is_sorted_by_rollout_and_age(steps: list[tuple[int, bool]]) -> None:
    """Each step is an outcome of a rollout, or has its outcome superseded if there is one."""
    hand, model = b"", dict[bytes, list[tuple[int, int]]]()
    for age, (number, superseding) in enumerate(steps):
        key = bytes([number]) * 16
        entries = model.setdefault(key, [])
        current = bool(entries) and entries[-1][1] == CURRENT
        kind = SUPERSEDED_OUTCOME if superseding and current else CURRENT
        hand += _ENTRY.pack(key, age, kind, 1, 0, 0, age) + bytes(PLACE_BYTES)
        if kind == CURRENT:
            entries.append((age, kind))
        else:
            entries[-1] = (entries[-1][0], kind)
    got = [_unpack(entry) for entry in _sorted(hand)]
    assert [(one.key, one.attempt, one.kind, one.time_unix_nano) for one in got] == [
        (key, age, kind, age) for key in sorted(model) for age, kind in model[key]
    ]


def test_what_was_never_current_cannot_be_superseded() -> None:
    first, second = (
        _ENTRY.pack(bytes([number]) * 16, 1, kind, 1, 0, 0, 1) + bytes(PLACE_BYTES)
        for number, kind in ((1, CURRENT), (2, SUPERSEDED_OUTCOME))
    )
    for hand in (second, first + second):
        with pytest.raises(BadRecord, match="superseded"):
            _sorted(hand)
