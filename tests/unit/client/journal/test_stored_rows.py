"""All rows of a run, by its journal alone: order, damage, and a compaction meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gymmesh_client.log.places import RunPlaces
from gymmesh_client.log.reading import opened
from gymmesh_client.log_records import RETRY, ROWS
from gymmesh_client.output.compaction import compact
from gymmesh_client.rollout_ids import rollout_key
from gymmesh_client.row_files.run_rows import checked_rows, every_row, open_rows, stored_rows
from tests.unit.client.journal.test_reader import begun, name, new


@pytest.mark.parametrize("layout", [{}, {"zstd": True}, {"shard_rows": 7}])
def test_rows_are_read_while_their_files_are_compacted(
    tmp_path: Path, layout: dict[str, Any]
) -> None:
    files, journal = begun(tmp_path, **layout)
    for begin in range(0, 40, 5):
        journal.commit([new(number, "x" * number) for number in range(begin, begin + 5)])
    rows = stored_rows(files, ROWS)
    first = [next(rows).line for _ in range(3)]
    gone = {rollout_key(name(number)) for number in (1, 4, 20)}
    journal.supersede(journal.current(lambda one: one.key in gone), RETRY)
    compact(journal)
    read = first + [row.line for row in rows]
    assert set(read) >= {new(n, "x" * n).row for n in range(40) if n not in (1, 4, 20)}
    assert len(read) == len(set(read))
    after = list(stored_rows(files, ROWS))
    assert [row.line for row in after] == [
        new(n, "x" * n).row for n in range(40) if n not in (1, 4, 20)
    ]
    journal.close()


def test_a_compaction_between_the_log_and_the_file_is_noticed(tmp_path: Path) -> None:
    files, journal = begun(tmp_path)
    journal.commit([new(number, "x" * number) for number in range(10)])
    with opened(files) as log:
        places = RunPlaces(files)
        places.read(log)
        first = rollout_key(name(0))
        journal.supersede(journal.current(lambda one: one.key == first), RETRY)
        compact(journal)
        with open_rows(places, (ROWS, 0), log) as fd:
            rows = list(checked_rows(places, (ROWS, 0), fd))
    assert [row.line for row in rows] == [new(n, "x" * n).row for n in range(1, 10)]
    journal.close()


def test_lines_are_numbered_as_they_stand(tmp_path: Path) -> None:
    files, journal = begun(tmp_path, shard_rows=4)
    journal.commit([new(number, "abc") for number in range(6)])
    second = rollout_key(name(1))
    journal.supersede(journal.current(lambda one: one.key == second), RETRY)
    journal.close()
    files = files.of_session({"shard_rows": 4})
    shown = [(row.path.name, row.number) for row in stored_rows(files, ROWS)]
    assert shown == [("out-00000.jsonl", number) for number in (1, 3, 4)] + [
        ("out-00001.jsonl", number) for number in (1, 2)
    ]
    data = files.shard(0).read_bytes()
    files.shard(0).write_bytes(data.replace(b"abc", b"abd"))
    assert [row.line is None for row in every_row(files, ROWS)] == [True] * 3 + [False] * 2
