"""An index stays right when what it is of is replaced, renamed, or the disk is full."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gymmesh_client import UserError
from gymmesh_client.index import IndexSource, IndexWriter, is_index
from gymmesh_client.index.run_attempts import RunAttempts
from gymmesh_client.journal.journal import Journal, NewOutcome
from gymmesh_client.log_records import COMPLETED
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.rollout_ids import rollout_id, rollout_key
from gymmesh_view import Filters, Sort, find_sources
from gymmesh_view.index import indexing
from gymmesh_view.index.connection import connect
from gymmesh_view.index.indexing import Indexer, own_index
from gymmesh_view.index.store import Store
from gymmesh_view.reading import Reading
from tests.unit.data.rows import row, text, write_rows
from tests.view.rows import row as whole_row


def begun(path: Path, run_id: str, count: int) -> OutputFiles:
    """A run with so many rollouts."""
    files = OutputFiles(path)
    path.parent.mkdir(exist_ok=True)
    journal = Journal.create(files, {"run_id": run_id, "shard_rows": None, "zstd": False})
    journal.commit([outcome(run_id, number) for number in range(count)])
    journal.close()
    return files


def outcome(run_id: str, number: int) -> NewOutcome:
    name = rollout_id(run_id, f"t-{number}", 0)
    made = whole_row("sums", number, 0, f"task {number}", [text("x")], 1.0) | {"rollout_id": name}
    return NewOutcome(rollout_key(name), 1, COMPLETED, 0, json.dumps(made).encode())


def test_words_of_rows_that_are_gone_find_nothing(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [row(text("apple"), repeat=at) for at in range(3)])
    index = tmp_path / "i.sqlite"
    indexer = Indexer(find_sources([path]).sources, index)
    indexer.prepare()
    indexer.run_once()
    write_rows(path, [row(text("pear"), repeat=at) for at in range(4)])
    indexer.run_once()
    with closing(Store(index)) as store:
        assert store.counted(Filters(text="pear")) == 4
        assert store.counted(Filters(text="apple")) == 0
    indexer.stop()


def test_the_page_of_a_run_that_was_renamed_reads_its_rows(tmp_path: Path) -> None:
    files = begun(tmp_path / "out.jsonl", "r", 2)
    sources = find_sources([files.rows]).sources
    first = Indexer(sources, tmp_path / "cache" / "a.sqlite", own_index(sources))
    first.prepare()
    first.run_once()
    first.stop()
    for path in (files.rows, files.journal, files.index):
        path.rename(path.with_name(path.name.replace("out", "new")))
    sources = find_sources([tmp_path / "new.jsonl"]).sources
    second = Indexer(sources, tmp_path / "cache" / "b.sqlite", own_index(sources))
    second.prepare()
    second.run_once()
    with closing(Store(tmp_path / "cache" / "b.sqlite")) as store:
        listed = store.listed(Filters(), Sort(), 0, 9)
        assert len(listed) == 2
        for one in listed:
            said = json.loads(Reading(store, sources).raw(one["key"]))
            assert said["rollout_id"] == one["rollout_id"]
    second.stop()


def test_a_run_that_is_replaced_while_it_is_looked_at_is_taken_in_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `collect --overwrite` does, between two looks of a step."""
    files = begun(tmp_path / "out.jsonl", "first", 3)
    other = begun(tmp_path / "other" / "out.jsonl", "second", 1)
    with closing(sqlite3.connect(tmp_path / "i.sqlite", isolation_level=None)) as database:
        writer = IndexWriter(database, [IndexSource(files.rows, files)])
        while writer.step():
            pass
        asked = RunAttempts.has_news

        def has_news(attempts: RunAttempts) -> bool:
            news = asked(attempts)
            if other.journal.exists():
                other.rows.replace(files.rows)
                other.journal.replace(files.journal)
                return True
            return news

        monkeypatch.setattr(RunAttempts, "has_news", has_news)
        while writer.step():
            pass
        assert not other.journal.exists()
        found = database.execute("SELECT rollout_id FROM attempts").fetchall()
    assert found == [(rollout_id("second", "t-0", 0),)]


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [row(text("a"))])
    indexer = Indexer(find_sources([path]).sources, tmp_path / "i.sqlite")
    indexer.prepare()
    write_rows(path, [row(text("a" * 500), repeat=at) for at in range(300)])
    limit_pages(monkeypatch)
    with pytest.raises(UserError, match=r"i\.sqlite: cannot be written: .*full"):
        indexer.run_once()
    indexer.stop()


def test_the_page_follows_again_once_a_full_disk_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [row(text("a"))])
    index = tmp_path / "i.sqlite"
    indexer = Indexer(find_sources([path]).sources, index)
    indexer.prepare()
    tried, room = threading.Event(), threading.Event()

    def writer(*args: Any) -> IndexWriter:
        if not room.is_set():
            tried.set()
            raise sqlite3.OperationalError("database or disk is full")
        return IndexWriter(*args)

    monkeypatch.setattr(indexing, "IndexWriter", writer)
    indexer.start()
    assert tried.wait(60)
    room.set()
    until = time.monotonic() + 60
    with closing(Store(index)) as store:
        while store.progress()["rollouts"] < 1 and time.monotonic() < until:
            time.sleep(0.01)
        assert store.progress()["rollouts"] == 1
    indexer.stop()


@pytest.mark.parametrize("asked", [False, True], ids=["not asked yet", "asked"])
def test_a_second_page_follows_on_when_the_first_closes(tmp_path: Path, asked: bool) -> None:
    """The first brings the index home, unless the second has it open."""
    files = begun(tmp_path / "out.jsonl", "r", 2)
    sources = find_sources([files.rows]).sources
    index = tmp_path / "cache" / "i.sqlite"
    first, second = (Indexer(sources, index, own_index(sources)) for _ in range(2))
    with closing(Store(index)) as store:
        for indexer in (first, second):
            indexer.prepare()
        first.run_once()
        second.start()
        file = index.stat().st_ino
        if asked:
            assert store.counted(Filters()) == 2
        first.stop()
        journal = Journal.resume(files)
        journal.commit([outcome("r", 2)])
        journal.close()
        until = time.monotonic() + 60
        found = 0
        while found < 3 and time.monotonic() < until:
            with contextlib.suppress(UserError):  # for a moment there is none
                found = store.counted(Filters())
            time.sleep(0.01)
        assert found == 3
        if asked:
            assert index.stat().st_ino == file  # it was left as a kill leaves it, and is whole
    second.stop()
    assert is_index(files.index)
    assert not list(index.parent.glob("*.sqlite*"))


def limit_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no index grow."""

    def limited(path: Path, *, write: bool) -> sqlite3.Connection:
        database = connect(path, write=write)
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count = {pages}")
        return database

    monkeypatch.setattr(indexing, "connect", limited)
