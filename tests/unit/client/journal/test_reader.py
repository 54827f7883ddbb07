"""Looking rollouts up: the index, its staleness, and runs that are going on."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_client import UserError, open_run
from gymmesh_client.index.seal import seal, unseal
from gymmesh_client.journal.journal import Journal, NewOutcome
from gymmesh_client.log.frames import encode_frame, scan
from gymmesh_client.log_records import (
    COMPLETED,
    FAILED,
    NEW_VERIFICATION,
    RETRY,
    ROWS,
    AttemptFailed,
    CurrentOutcome,
    Place,
    Superseded,
    encode,
)
from gymmesh_client.output.compaction import compact
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.rollout_ids import rollout_id, rollout_key
from gymmesh_client.row_files.run_rows import stored_rows


def name(number: int) -> str:
    return rollout_id("r", f"t-{number}", 0)


def new(number: int, text: str = "", status: int = COMPLETED) -> NewOutcome:
    row = json.dumps({"rollout_id": name(number), "text": text}).encode()
    return NewOutcome(rollout_key(name(number)), 1, status, 0, row)


def begun(folder: Path, **layout: Any) -> tuple[OutputFiles, Journal]:
    files = OutputFiles(folder / "out.jsonl", **layout)
    info = {"run_id": "r", "shard_rows": files.shard_rows, "zstd": files.compressed, "repeats": 1}
    return files, Journal.create(files, info)


def replace(journal: Journal, old: CurrentOutcome, *entries: NewOutcome) -> None:
    journal.commit([Superseded(old.key, old.attempt, NEW_VERIFICATION, old.place), *entries])


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
        assert [json.loads(line) for line in run.lines()] == list(run.rows())
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


def test_a_journal_that_lost_its_first_commit_is_damaged(tmp_path: Path) -> None:
    files, journal = begun(tmp_path)
    journal.commit([new(1)])
    journal.close()
    files.journal.write_bytes(files.journal.read_bytes()[:40])
    with pytest.raises(UserError, match="does not name the run"):
        open_run(files.rows)
    with pytest.raises(UserError, match="does not name the run"):
        list(stored_rows(files, ROWS))


@pytest.mark.parametrize("zstd", [False, True])
def test_a_new_verdict_takes_the_place_of_the_old_one(tmp_path: Path, zstd: bool) -> None:
    files, journal = begun(tmp_path, zstd=zstd)
    journal.commit([new(1, "pending"), new(2, "other")])
    (old,) = journal.current(lambda one: one.key == rollout_key(name(1)))
    replace(journal, old, new(1, "judged"))
    for _ in range(2):  # before the old row is gone from its file, and then
        with open_run(files.rows) as run:
            assert sorted(row["text"] for row in run.rows()) == ["judged", "other"]
            assert [(one.superseded, one.current) for one in run.attempts(name(1))] == [
                ("a new verification", False),
                ("", True),
            ]
            assert b'"pending"' in (run.attempts(name(1))[0].row or b"")
        compact(journal)
    journal.close()


def test_a_damaged_row_is_told(tmp_path: Path) -> None:
    files, journal = begun(tmp_path)
    journal.commit([new(1, "abc")])
    journal.close()
    files.rows.write_bytes(files.rows.read_bytes().replace(b"abc", b"abd"))
    with (
        open_run(files.rows) as run,
        pytest.raises(UserError, match=r"out\.jsonl:1: the row was changed after"),
    ):
        run.get_rollout(name(1))


def test_a_superseded_row_that_was_changed_is_in_nobody_s_way(tmp_path: Path) -> None:
    files, journal = begun(tmp_path)
    journal.commit([new(1, "pending")])
    (old,) = journal.current(lambda one: True)
    replace(journal, old, new(1, "judged"))
    compact(journal)
    journal.close()
    files.superseded.write_bytes(files.superseded.read_bytes().replace(b"pending", b"settled"))
    with open_run(files.rows) as run:
        assert [(one.row is None, one.damaged) for one in run.attempts(name(1))] == [
            (True, True),
            (False, False),
        ]
        assert run.line(name(1)) == new(1, "judged").row
        assert [row["text"] for row in run.rows()] == ["judged"]


@pytest.mark.parametrize("layout", [{}, {"zstd": True}])
def test_a_run_that_is_compacted_after_it_was_opened(
    tmp_path: Path, layout: dict[str, Any]
) -> None:
    files, journal = begun(tmp_path, **layout)
    journal.commit([new(number, "x" * number) for number in range(5)])
    with open_run(files.rows) as run:
        old = journal.current(lambda one: one.key == rollout_key(name(1)))
        journal.supersede(old, RETRY)
        compact(journal)
        assert run.line(name(4)) == new(4, "xxxx").row
        assert run.line(name(1)) is None
        assert [one.damaged for one in run.attempts(name(3))] == [False]
    journal.close()


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"out\.journal is missing"):
        open_run(tmp_path / "out.jsonl")


def attempts(path: Path, columns: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(f"SELECT {columns} FROM attempts ORDER BY rowid").fetchall()


@pytest.mark.parametrize("layout", [{}, {"zstd": True}])
def test_the_index_has_what_the_rows_say(tmp_path: Path, layout: dict[str, Any]) -> None:
    files, journal = begun(tmp_path, **layout)
    row = {"task_id": "t-1", "repeat_index": 0, "environment": "shop", "reward": 0.5}
    row |= {"program_name": "codex", "program_version": "0.169.0"}
    row |= {"stop_reason": "MODEL_FINISHED", "response": {"usage": {"total_tokens": 7}}}
    other = {"task_id": "t-2", "repeat_index": 3, "environment": "shop"}
    other |= {"failure": {"status": {"reason": "MODEL_SERVER_ERROR"}}}
    lines = [json.dumps({"rollout_id": name(at)} | one) for at, one in ((1, row), (2, other))]
    model = rollout_pb2.BOUNDARY_MODEL
    journal.commit([AttemptFailed(rollout_key(name(2)), 1, model)])
    journal.commit(
        [
            NewOutcome(rollout_key(name(1)), 1, COMPLETED, 0, lines[0].encode()),
            NewOutcome(rollout_key(name(2)), 2, FAILED, model, lines[1].encode()),
        ]
    )
    journal.close()
    open_run(files.rows).close()
    said = "rollout_id, attempt, task_id, repeat, environment, outcome, boundary, reason, reward"
    assert attempts(files.index, f"{said}, tokens, current") == [
        (name(2), 1, "t-2", 3, "shop", "failed", "MODEL", None, None, None, 0),
        (name(1), 1, "t-1", 0, "shop", "completed", None, "MODEL_FINISHED", 0.5, 7, 1),
        (name(2), 2, "t-2", 3, "shop", "failed", "MODEL", "MODEL_SERVER_ERROR", None, None, 1),
    ]
    ran = attempts(files.index, "program, program_version")
    assert ran == [(None, None), ("codex", "0.169.0"), (None, None)]
    for file, offset, size in attempts(files.index, "row_file, row_offset, row_bytes"):
        if file == "out.jsonl":
            assert (tmp_path / file).read_bytes()[offset : offset + size - 1].decode() in lines


def test_a_row_that_says_something_else_is_indexed_without_it(tmp_path: Path) -> None:
    files, journal = begun(tmp_path)
    odd = json.dumps({"rollout_id": name(1), "repeat_index": 1 << 70, "task_id": 5}).encode()
    journal.commit([NewOutcome(rollout_key(name(1)), 1, COMPLETED, 0, odd)])
    journal.close()
    with open_run(files.rows) as run:
        assert run.get_rollout(name(1)) == json.loads(odd)
    assert attempts(files.index, "rollout_id, task_id, repeat, outcome") == [
        (None, None, None, "completed")
    ]


def test_an_index_goes_on_where_it_ended(tmp_path: Path) -> None:
    """What the older index has is taken from there, and not from the journal again."""
    files, journal = begun(tmp_path)
    journal.commit([new(1), new(2)])
    open_run(files.rows).close()
    unseal(files.index)
    with closing(sqlite3.connect(files.index)) as database, database:
        database.execute("UPDATE attempts SET environment = 'mark'")
    seal(files.index)
    old, _ = journal.current(lambda one: True)
    replace(journal, old, new(1, "judged"), new(3))
    compact(journal)
    journal.close()
    with open_run(files.rows) as run:
        assert run.completed == 3
        assert [one.superseded for one in run.attempts(name(1))] == ["a new verification", ""]
    assert attempts(files.index, "rollout_id, current, environment") == [
        (name(1), 0, "mark"),
        (name(2), 1, "mark"),
        (name(1), 1, None),
        (name(3), 1, None),
    ]


def test_an_older_index_that_is_damaged_is_made_anew(tmp_path: Path) -> None:
    files, journal = begun(tmp_path)
    journal.commit([new(number) for number in range(300)])
    open_run(files.rows).close()
    raw = files.index.read_bytes()
    files.index.write_bytes(raw[:8192] + b"\xff" * 8192 + raw[16384:])
    journal.commit([new(300)])
    journal.close()
    with open_run(files.rows) as run:
        assert all(run.line(name(number)) is not None for number in range(301))


@pytest.mark.parametrize(
    "planted",
    [
        "CREATE TRIGGER planted AFTER INSERT ON attempts BEGIN DELETE FROM attempts; END",
        "CREATE TABLE planted (name TEXT)",
    ],
)
def test_an_index_with_other_tables_or_triggers_is_made_anew(tmp_path: Path, planted: str) -> None:
    files, journal = begun(tmp_path)
    journal.commit([new(1)])
    open_run(files.rows).close()
    with closing(sqlite3.connect(files.index)) as database, database:
        database.execute(planted)
    journal.commit([new(2)])
    journal.close()
    with open_run(files.rows) as run:
        assert run.completed == 2
    with closing(sqlite3.connect(files.index)) as database:
        query = "SELECT count(*) FROM sqlite_schema WHERE name = 'planted'"
        assert database.execute(query).fetchone() == (0,)


@pytest.mark.parametrize("value", ["boundary = x'00'", "outcome = 'odd'", "row_length = -1"])
def test_an_index_that_says_what_none_would_is_made_anew(tmp_path: Path, value: str) -> None:
    files, journal = begun(tmp_path)
    journal.commit([new(1, status=FAILED)])
    journal.close()
    open_run(files.rows).close()
    with closing(sqlite3.connect(files.index)) as database, database:
        database.execute(f"UPDATE attempts SET {value}")
    with open_run(files.rows) as run:
        assert run.line(name(1)) == new(1).row


def test_a_byte_that_changed_in_the_index_is_noticed(tmp_path: Path) -> None:
    files, journal = begun(tmp_path)
    row = {"rollout_id": name(1), "task_id": "t-1", "reward": 0.5, "environment": "shop"}
    journal.commit([NewOutcome(rollout_key(name(1)), 1, COMPLETED, 0, json.dumps(row).encode())])
    journal.close()
    open_run(files.rows).close()
    raw = files.index.read_bytes()
    for old, new_ in ((b"shop", b"shot"), (rollout_key(name(1)), bytes(16))):
        assert old in raw
        files.index.write_bytes(raw.replace(old, new_))
        with open_run(files.rows) as run:
            assert run.get_rollout(name(1)) == row
        assert attempts(files.index, "environment, reward, damaged") == [("shop", 0.5, 0)]


@pytest.mark.parametrize("layout", [{}, {"shard_rows": 2}, {"zstd": True}])
@pytest.mark.parametrize("indexed", [True, False])
def test_a_row_that_was_changed_is_believed_by_no_reader(
    tmp_path: Path, layout: dict[str, Any], indexed: bool
) -> None:
    files, journal = begun(tmp_path, **layout)
    for number in range(5):
        journal.commit([new(number, "abc")])
    journal.close()
    if indexed:
        open_run(files.rows).close()
    shard = files.of_session({"zstd": files.compressed, "shard_rows": files.shard_rows}).shard(
        1 if files.shard_rows else 0
    )
    good = shard.read_bytes()
    place, line = changed(shard, good)
    with open_run(files.rows) as run:
        told = rf"{shard.name}:{line}: the row was changed after it was written"
        with pytest.raises(UserError, match=told):
            list(run.rows())
        with pytest.raises(UserError, match=told):
            run.get("t-3")
        assert run.get("t-1") == json.loads(new(1, "abc").row)
    if not indexed:
        assert [one for (one,) in attempts(files.index, "damaged")] == [0, 0, 0, 1, 0]
    shard.write_bytes(good)
    with open_run(files.rows) as run:
        assert len(list(run.rows())) == 5
    assert place < len(good)
    assert [one for (one,) in attempts(files.index, "damaged")] == [0] * 5


def changed(path: Path, good: bytes) -> tuple[int, int]:
    """Change a byte of t-3's row; where it is, and the number of its line."""
    if path.name.endswith(".zst"):
        starts = [at for at in range(len(good)) if good.startswith(b"\x28\xb5\x2f\xfd", at)]
        place, line = starts[3] + 20, 4
    else:
        lines = good.splitlines(keepends=True)
        line = next(at for at, one in enumerate(lines, 1) if name(3).encode() in one)
        place = good.index(name(3).encode()) + len(name(3)) + 13
    path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
    return place, line


def test_a_run_that_was_renamed_is_indexed_anew(tmp_path: Path) -> None:
    files, journal = begun(tmp_path)
    journal.commit([new(1)])
    journal.close()
    open_run(files.rows).close()
    for path in (files.rows, files.journal, files.index):
        path.rename(path.with_name(path.name.replace("out", "new")))
    with open_run(tmp_path / "new.jsonl") as run:
        assert run.line(name(1)) is not None
    assert attempts(tmp_path / "new.index", "row_file") == [("new.jsonl",)]


def test_the_index_leaves_nothing_beside_it(tmp_path: Path) -> None:
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


def test_what_was_never_current_cannot_be_superseded(tmp_path: Path) -> None:
    files, journal = begun(tmp_path)
    journal.commit([new(1)])
    journal.close()
    record = Superseded(rollout_key(name(2)), 1, RETRY, Place(ROWS, 0, 0, 0, 1, 1, 0))
    whole = files.journal.read_bytes()
    sequence = sum(1 for _ in scan(whole))
    frame = encode_frame(sequence, 0, encode(record))
    files.journal.write_bytes(whole + frame)
    with pytest.raises(UserError, match="supersedes an outcome that the journal does not contain"):
        open_run(files.rows)
    assert not files.index.exists()


@pytest.mark.parametrize("superseded", [True, False])
def test_an_index_is_made_anew_only_for_damaged_rows_that_are_current(
    tmp_path: Path, superseded: bool
) -> None:
    files, journal = begun(tmp_path)
    journal.commit([new(1, "pending")])
    if superseded:
        (old,) = journal.current(lambda one: True)
        replace(journal, old, new(1, "judged"))
    journal.close()
    files.rows.write_bytes(files.rows.read_bytes().replace(b"pending", b"settled"))
    open_run(files.rows).close()
    before = files.index.stat().st_ino
    open_run(files.rows).close()
    assert (files.index.stat().st_ino == before) == superseded
