"""What is shown of a run is what its journal says is current; of a file, what stands in it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha512
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymmesh_client import UserError, open_run
from gymmesh_client.index.seal import unseal
from gymmesh_client.journal.journal import Journal, NewOutcome
from gymmesh_client.log_records import COMPLETED, FAILED, RETRY, CurrentOutcome
from gymmesh_client.output.compaction import compact
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.rollout_ids import rollout_id, rollout_key
from gymmesh_client.row_files.zstd import Zstd
from gymmesh_view import Filters, Sort, find_sources, write_bundle
from gymmesh_view.index.indexing import Indexer, own_index
from gymmesh_view.index.store import Store
from gymmesh_view.reading import Reading
from tests.unit.data.rows import row, text, write_rows
from tests.view.rows import failed
from tests.view.rows import row as whole_row

Json = dict[str, Any]

LAYOUTS: list[dict[str, Any]] = [{}, {"shard_rows": 3}, {"zstd": True}]


class Shown:
    """An index over a folder, and what it has."""

    def __init__(self, folder: Path, *paths: Path) -> None:
        self._index = folder / "index.sqlite"
        self.indexer = Indexer(find_sources(paths).sources, self._index)
        self.indexer.prepare()

    def rows(self) -> list[tuple[str, int, bool]]:
        """Each rollout that is shown once all that is new is taken in."""
        self.indexer.run_once()
        store = Store(self._index)
        found = store.listed(Filters(), Sort(), 0, 500)
        for one in found:
            assert store.place(one["key"])[0] == one
        store.close()
        return sorted((one["rollout_id"], one["attempt"], one["failed"]) for one in found)

    def with_critic(self) -> set[str]:
        """The rollouts that the filter by actor finds."""
        store = Store(self._index)
        found = store.listed(Filters(actor=("critic",)), Sort(), 0, 500)
        store.close()
        return {one["rollout_id"] for one in found}

    def progress(self) -> Json:
        store = Store(self._index)
        said = store.progress()
        store.close()
        return said

    def close(self) -> None:
        self.indexer.stop()


def new(number: int, attempt: int) -> NewOutcome:
    name = rollout_id("r", f"t-{number}", 0)
    made = whole_row("sums", number, 0, f"task {number}", [text("x" * number)], 1.0)
    made |= {"rollout_id": name, "attempt": attempt}
    if number % 3 == 0:
        made["actors"] = [{"name": "critic", "conversations": [{"items": [text("no")]}]}]
    fails = (number + attempt) % 4 == 0
    made = failed(made) if fails else made
    status = FAILED if fails else COMPLETED
    return NewOutcome(rollout_key(name), attempt, status, 0, json.dumps(made).encode())


def outcomes_of(journal: Journal, number: int) -> list[CurrentOutcome]:
    """A rollout's outcome that is current, for it to be superseded."""
    key = new(number, 1).key
    return list(journal.current(lambda one: one.key == key))


def current(files: OutputFiles) -> list[tuple[str, int, bool]]:
    """What the run's own reader says."""
    with open_run(files.rows) as run:
        done = [(one["rollout_id"], one["attempt"], False) for one in run.rows()]
        return sorted(done + [(one["rollout_id"], one["attempt"], True) for one in run.failures()])


steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(1, 6)),
        st.tuples(st.just("retry"), st.integers(0, 20)),
        st.tuples(st.just("compact"), st.just(0)),
        st.tuples(st.just("look"), st.just(0)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=14,
)


@pytest.mark.parametrize("layout", LAYOUTS, ids=["plain", "shards", "zstd"])
@settings(max_examples=40, deadline=None)
@given(steps=steps)
def test_what_is_current_is_shown(
    tmp_path_factory: pytest.TempPathFactory, layout: Json, steps: list[tuple[str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    files = OutputFiles(folder / "out.jsonl", **layout)
    info = {"run_id": "r", "shard_rows": files.shard_rows, "zstd": files.compressed, "repeats": 1}
    journal = Journal.create(files, info)
    attempts: dict[int, int] = {}
    shown = Shown(folder, files.rows)
    try:
        for what, number in steps:
            if what == "commit":
                first = len(attempts)
                batch = [new(first + at, 1) for at in range(number)]
                attempts |= {first + at: 1 for at in range(number)}
                journal.commit(batch)
            elif what == "retry" and number in attempts:
                journal.supersede(outcomes_of(journal, number), RETRY)
                attempts[number] += 1
                journal.commit([new(number, attempts[number])])
            elif what == "compact":
                compact(journal)
            elif what == "look":
                assert shown.rows() == current(files)
            elif what == "restart":
                shown.close()
                shown = Shown(folder, files.rows)
        assert shown.rows() == current(files)
        assert shown.progress()["wrong"] == 0
        spoken = {number for number in attempts if number % 3 == 0}
        assert shown.with_critic() == {rollout_id("r", f"t-{one}", 0) for one in spoken}
    finally:
        shown.close()
        journal.close()


def test_rows_that_no_journal_names_are_not_shown(tmp_path: Path) -> None:
    files = OutputFiles(tmp_path / "out.jsonl")
    journal = Journal.create(files, {"run_id": "r", "shard_rows": None, "zstd": False})
    journal.commit([new(1, 1)])
    with files.rows.open("ab") as file:
        file.write(new(2, 1).row + b"\n" + b'{"half')
    shown = Shown(tmp_path, files.rows)
    assert [one for one, _, _ in shown.rows()] == [rollout_id("r", "t-1", 0)]
    shown.close()
    journal.close()


@pytest.fixture
def shown_file(tmp_path: Path) -> Iterator[tuple[Path, Shown]]:
    path = write_rows(tmp_path / "rows.jsonl", [row(text("a"), repeat=at) for at in range(3)])
    shown = Shown(tmp_path, path)
    yield path, shown
    shown.close()


def test_a_file_that_grows_is_read_on(shown_file: tuple[Path, Shown]) -> None:
    path, shown = shown_file
    assert len(shown.rows()) == 3
    more = json.dumps(row(text("b"), repeat=3))
    with path.open("a") as file:
        file.write(more[:50])
    assert len(shown.rows()) == 3
    assert shown.progress()["wrong"] == 0
    with path.open("a") as file:
        file.write(more[50:])
    assert len(shown.rows()) == 4  # also without a newline
    with path.open("a") as file:
        file.write("\n")
    assert len(shown.rows()) == 4


def test_a_file_that_is_another_one_is_read_anew(shown_file: tuple[Path, Shown]) -> None:
    path, shown = shown_file
    shown.rows()
    write_rows(path, [row(text("c"), task="other", repeat=at) for at in range(2)])
    assert [one for one, _, _ in shown.rows()] == ["ro-other-0", "ro-other-1"]


def test_lines_that_are_no_rollouts_are_counted_and_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    lines = [json.dumps(row(text("a"))), "no json", "[1]", '{"response": 1}', ""]
    path.write_text("\n".join(lines))
    shown = Shown(tmp_path, path)
    assert len(shown.rows()) == 1
    said = shown.progress()
    assert said["wrong"] == 3
    assert all(f"{path}: byte " in one for one in said["problems"])
    shown.close()


def test_rows_of_one_rollout_id_are_each_shown(tmp_path: Path) -> None:
    """A run beside what it became by a new verdict, or a row twice in a file."""
    first = write_rows(
        tmp_path / "a.jsonl", [row(text("1"), reward=1.0), row(text("2"), reward=0.5)]
    )
    second = write_rows(
        tmp_path / "b.jsonl", [row(text("3"), reward=0.0), row(text("4"), task="x")]
    )
    sources = find_sources([first, second]).sources
    indexer = Indexer(sources, tmp_path / "i.db")
    indexer.prepare()
    indexer.run_once()
    with closing(Store(tmp_path / "i.db")) as store:
        reading = Reading(store, sources)
        listed = store.listed(Filters(), Sort(), 0, 9)
        assert "ro-x-0" in {one["key"] for one in listed}
        opened = {}
        for one in listed:
            said = json.loads(reading.raw(one["key"]))
            assert (said["reward"], said["task_id"]) == (one["reward"], one["task"])
            opened[said["response"]["output"][0]["content"][0]["text"]] = one["key"]
        assert sorted(opened) == ["1", "2", "3", "4"]
        assert len(set(opened.values())) == 4
        assert {one["key"] for one in store.repeats("sum-1")} < set(opened.values())
    indexer.stop()


def test_names_that_are_no_text_of_utf_8_are_shown(tmp_path: Path) -> None:
    odd = dict.fromkeys(("rollout_id", "environment", "agent", "stop_reason"), "a \ud800")
    path = write_rows(
        tmp_path / "rows.jsonl", [row(text("a")), row(text("b"), task="\udfff") | odd]
    )
    shown = Shown(tmp_path, path)
    assert len(shown.rows()) == 2
    shown.close()
    sources = find_sources([path]).sources
    write_bundle(sources, tmp_path / "site", Filters(), Sort(), limit=9, index=tmp_path / "i.db")


def test_a_folder_stands_for_its_runs_and_files(tmp_path: Path) -> None:
    files = OutputFiles(tmp_path / "night" / "out.jsonl")
    files.rows.parent.mkdir()
    Journal.create(files, {"run_id": "r", "shard_rows": None, "zstd": False}).close()
    write_rows(tmp_path / "old.jsonl", [row(text("a"))])
    (tmp_path / "tasks.jsonl").write_text('{"responses_create_params": {"input": "x"}}\n')
    (tmp_path / ".hidden").mkdir()
    write_rows(tmp_path / ".hidden" / "x.jsonl", [row(text("a"))])
    found = find_sources([tmp_path, tmp_path / "old.jsonl"])
    assert [one.path.name for one in found.sources] == ["out.jsonl", "old.jsonl"]
    assert [one.run is not None for one in found.sources] == [True, False]
    assert [one.name for one in found.others] == ["tasks.jsonl"]


def test_nothing_to_show_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        find_sources([tmp_path / "none.jsonl"])
    with pytest.raises(UserError, match="has no rollouts"):
        find_sources([tmp_path])


def test_one_process_writes_an_index(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [row(text("a"))])
    first, second = Shown(tmp_path, path), Shown(tmp_path, path)
    assert len(first.rows()) == 1
    with pytest.raises(UserError, match="another gym-cli view"):
        second.indexer.run_once()
    assert second.progress()["rollouts"] == 1
    second.close()
    first.close()


@pytest.mark.parametrize("layout", LAYOUTS, ids=["plain", "shards", "zstd"])
def test_a_row_that_was_changed_is_a_problem_and_not_shown(tmp_path: Path, layout: Json) -> None:
    files = OutputFiles(tmp_path / "out.jsonl", **layout)
    info = {"run_id": "r", "shard_rows": files.shard_rows, "zstd": files.compressed, "repeats": 1}
    journal = Journal.create(files, info)
    for number in (1, 2, 4):  # each in a commit of its own; none of them fails
        journal.commit([new(number, 1)])
    journal.close()
    shown = Shown(tmp_path, files.rows)
    assert len(shown.rows()) == 3
    path = files.shard(0)
    good = path.read_bytes()
    change_last(path, good)
    name = rollout_id("r", "t-4", 0)
    told = rf"{path.name}:3: the row was changed after it was written"
    store = Store(tmp_path / "index.sqlite")  # what was taken in before is compared, too
    with pytest.raises(UserError, match=told):
        Reading(store, find_sources([files.rows]).sources).rollout(name)
    store.close()
    shown.close()
    for index in tmp_path.glob("index.*"):
        index.unlink()
    again = Shown(tmp_path, files.rows)
    assert name not in [one for one, _, _ in again.rows()]
    assert len(again.rows()) == 2
    (problem,) = again.progress()["problems"]
    assert f"{path.name}:3: the row was changed" in problem
    again.close()


def change_last(path: Path, good: bytes) -> None:
    """Change a byte in the last row of a file."""
    place = good.rindex(b"\x28\xb5\x2f\xfd") + 30 if path.name.endswith(".zst") else len(good) - 30
    path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])


@pytest.mark.parametrize("damage", ["a value", "a page", "cut", "nothing"])
def test_an_index_that_was_changed_is_made_anew(tmp_path: Path, damage: str) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [row(text("a"), repeat=at) for at in range(3)])
    shown = Shown(tmp_path, path)
    before = shown.rows()
    shown.close()
    index = tmp_path / "index.sqlite"
    whole = index.read_bytes()
    assert not list(tmp_path.glob("index.sqlite-*"))
    changed = {
        "a value": whole.replace(before[0][0].encode(), b"X" * len(before[0][0])),
        "a page": whole[:8192] + b"\xff" * 64 + whole[8256:],
        "cut": whole[:-2000],
        "nothing": whole,
    }[damage]
    assert (changed == whole) == (damage == "nothing")
    index.write_bytes(changed)
    again = Shown(tmp_path, path)
    assert again.rows() == before
    again.close()


def test_an_index_whose_writer_was_killed_is_continued(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [row(text("a"), repeat=at) for at in range(3)])
    shown = Shown(tmp_path, path)
    before = shown.rows()
    shown.close()
    index = tmp_path / "index.sqlite"
    unseal(index)  # as a kill leaves it
    with closing(sqlite3.connect(index)) as database, database:
        database.execute("UPDATE listed SET title = 'kept'")
    again = Shown(tmp_path, path)
    assert again.rows() == before
    with closing(sqlite3.connect(index)) as database:
        assert database.execute("SELECT DISTINCT title FROM listed").fetchall() == [("kept",)]
    again.close()


@pytest.mark.parametrize("layout", LAYOUTS, ids=["plain", "shards", "zstd"])
def test_a_row_that_is_restored_is_shown_again(tmp_path: Path, layout: Json) -> None:
    files = OutputFiles(tmp_path / "out.jsonl", **layout)
    info = {"run_id": "r", "shard_rows": files.shard_rows, "zstd": files.compressed, "repeats": 1}
    journal = Journal.create(files, info)
    for number in (1, 2, 4):
        journal.commit([new(number, 1)])
    journal.close()
    path = files.shard(0)
    good = path.read_bytes()
    change_last(path, good)
    shown = Shown(tmp_path, files.rows)
    assert len(shown.rows()) == 2
    assert shown.progress()["wrong"] == 1
    shown.close()
    path.write_bytes(good)
    again = Shown(tmp_path, files.rows)
    assert again.rows() == current(files)
    assert (again.progress()["wrong"], again.progress()["problems"]) == (0, [])
    again.close()


def test_a_frame_as_long_as_a_row_of_it_is_read_whole(tmp_path: Path) -> None:
    files = OutputFiles(tmp_path / "out.jsonl", zstd=True)
    journal = Journal.create(files, {"run_id": "r", "shard_rows": None, "zstd": True, "repeats": 1})
    journal.commit(frame_as_long_as_its_first_row())
    (first, _) = sorted(journal.current(lambda one: True), key=lambda one: one.place.inner)
    assert first.place.extent == first.place.length
    journal.close()
    shown = Shown(tmp_path, files.rows)
    names = [one for one, _, _ in shown.rows()]
    assert len(names) == 2
    shown.close()
    with closing(Store(tmp_path / "index.sqlite")) as store:
        reading = Reading(store, find_sources([files.rows]).sources)
        assert [json.loads(reading.raw(name))["rollout_id"] for name in names] == names


def frame_as_long_as_its_first_row() -> list[NewOutcome]:
    """Two rows; the second is of digits that hardly shrink, as many as make up for the first."""
    first, second = new(1, 1), new(2, 1)
    digits = "".join(sha512(bytes([at])).hexdigest() for at in range(64))
    for length in range(len(digits)):
        row = json.dumps(json.loads(second.row) | {"digits": digits[:length]}).encode()
        if len(Zstd().compress(first.row + b"\n" + row + b"\n")) == len(first.row) + 1:
            return [first, NewOutcome(second.key, 1, COMPLETED, 0, row)]
    raise AssertionError("no such frame")


def test_problems_are_counted_and_the_first_are_kept(tmp_path: Path) -> None:
    good = write_rows(tmp_path / "good.jsonl", [row(text("a"))])
    path = write_rows(tmp_path / "rows.jsonl", [row(text("b"), task="b")])
    with path.open("a") as file:
        file.write("[1]\n" * 120)
    shown = Shown(tmp_path, good, path)
    assert len(shown.rows()) == 2
    said = shown.progress()
    assert (said["wrong"], len(said["problems"])) == (120, 50)
    shown.close()
    with path.open("a") as file:
        file.write("[2]\n")
    again = Shown(tmp_path, good, path)
    again.rows()
    said = again.progress()
    assert (said["wrong"], len(said["problems"])) == (121, 50)
    path.write_text("[3]\n")
    again.rows()
    said = again.progress()
    assert (said["wrong"], len(said["problems"])) == (1, 1)
    again.close()


class Paged:
    """What the page of one run shows, with the index beside the run."""

    def __init__(self, folder: Path, rows: Path) -> None:
        self.sources = find_sources([rows]).sources
        self.working = folder / "cache" / "index.sqlite"
        self.indexer = Indexer(self.sources, self.working, own_index(self.sources))
        self.indexer.prepare()

    def rows(self) -> list[tuple[str, int, bool]]:
        self.indexer.run_once()
        with closing(Store(self.working)) as store:
            found = store.listed(Filters(text="task"), Sort(), 0, 500)
        return sorted((one["rollout_id"], one["attempt"], one["failed"]) for one in found)


@pytest.mark.parametrize("layout", LAYOUTS, ids=["plain", "shards", "zstd"])
def test_a_run_has_one_index_and_the_page_fills_its_tables(tmp_path: Path, layout: Json) -> None:
    files = OutputFiles(tmp_path / "out.jsonl", **layout)
    info = {"run_id": "r", "shard_rows": files.shard_rows, "zstd": files.compressed, "repeats": 1}
    journal = Journal.create(files, info)
    journal.commit([new(number, 1) for number in range(6)])
    open_run(files.rows).close()
    with closing(sqlite3.connect(files.index)) as database:
        tables = "SELECT count(*) FROM sqlite_schema WHERE name = 'words'"
        assert database.execute(tables).fetchone() == (0,)  # nobody asked for them
    first = Paged(tmp_path, files.rows)
    assert first.rows() == current(files)
    first.indexer.stop()
    assert not list(first.working.parent.glob("*.sqlite*"))
    # What the run's reader writes keeps them, and takes out what is no longer current.
    journal.supersede(outcomes_of(journal, 1), RETRY)
    journal.commit([new(1, 2), new(6, 1)])
    compact(journal)
    journal.close()
    open_run(files.rows).close()
    with closing(sqlite3.connect(files.index)) as database:
        described = "SELECT rollout_id FROM attempts WHERE described = 1 AND current = 1"
        assert len(database.execute(described).fetchall()) == 5
        assert database.execute("SELECT count(*) FROM rollouts").fetchone() == (5,)
    second = Paged(tmp_path, files.rows)
    assert second.rows() == current(files)
    second.indexer.stop()
    with open_run(files.rows) as run:
        assert run.get("t-6") is not None
    assert sorted(path.suffix for path in tmp_path.glob("out.i*")) == [".index"]


def test_an_index_that_was_changed_is_not_where_the_page_begins(tmp_path: Path) -> None:
    files = OutputFiles(tmp_path / "out.jsonl")
    journal = Journal.create(files, {"run_id": "r", "shard_rows": None, "zstd": False})
    journal.commit([new(1, 1)])
    journal.close()
    first = Paged(tmp_path, files.rows)
    shown = first.rows()
    first.indexer.stop()
    whole = files.index.read_bytes()
    assert b"sums" in whole
    files.index.write_bytes(whole.replace(b"sums", b"SUMS"))
    second = Paged(tmp_path, files.rows)
    assert second.rows() == shown
    with closing(Store(second.working)) as store:
        assert store.facets()["environment"] == ["sums"]
    second.indexer.stop()


def test_a_file_without_a_journal_has_no_index_beside_it(tmp_path: Path) -> None:
    several = find_sources([write_rows(tmp_path / "rows.jsonl", [row(text("a"))])]).sources
    assert own_index(several) is None
