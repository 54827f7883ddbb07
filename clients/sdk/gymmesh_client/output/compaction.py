"""Compaction: row files without their superseded rows, each swapped in as a whole.

1. The superseded rows are appended to NAME.superseded.jsonl, and synced.
2. The others are written to a draft beside the file, and the draft is synced.
3. One commit says that the file is compacted, where the dropped rows were, and the draft's number.
4. The draft is renamed.

A kill before 3 leaves the file as it was (`Journal.resume` drops the draft and cuts the
superseded rows off); a kill after it leaves the draft, which `Journal.resume` renames and readers
open in the file's stead (`row_files.open_row_file`).

Called at a run's end (`output`) and by `gym-cli data compact`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Final

from gymmesh_client.index import open_index
from gymmesh_client.journal import Journal
from gymmesh_client.log_records import SUPERSEDED, Compacted, Place, Removed, RowFile
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.problems import UserError
from gymmesh_client.row_files import RowReader, Zstd, every_row, is_compressed

_CHUNK: Final = 1 << 20
_ROWS_AT_ONCE: Final = 256


def compact_run(path: Path) -> int:
    """Compact a run's row files, and bring its index up to date; how many rows were dropped.

    Raises OutputError when the disk takes nothing more (nothing is lost), and UserError where there
    is no run, it is damaged, or a collector is at work in it.
    """
    files = OutputFiles(path)
    if not files.journal.exists():
        raise UserError(f"{files.journal} is missing, so there is no run to compact")
    with closing(Journal.resume(files)) as journal:
        dropped = compact(journal)
    try:
        open_index(files).close()
    except OSError as error:
        raise UserError(f"{files.index}: cannot be written: {error}") from None
    return dropped


def compact(journal: Journal) -> int:
    """Take the superseded rows out of a journal's row files; how many there were. Raises
    OutputError when the disk takes nothing more, and UserError where a compressed row is damaged.
    """
    by_file: dict[RowFile, list[Place]] = defaultdict(list)
    for place in journal.state.superseded:
        by_file[place.file].append(place)
    latest = max(journal.state.compacted.values(), default=0)
    for number, (file, places) in enumerate(by_file.items(), latest + 1):
        try:
            _compact_file(journal, file, sorted(places), number)
        except OSError as error:
            raise journal.fail(error) from None
    return sum(map(len, by_file.values()))


def _compact_file(journal: Journal, file: RowFile, places: Sequence[Place], number: int) -> None:
    disk, rows, path = journal.disk, journal.row_files, journal.files.row_file(*file)
    kept_at = rows.ends.get((SUPERSEDED, 0), 0)
    with closing(RowReader(journal.files, {})) as reader:
        for first in range(0, len(places), _ROWS_AT_ONCE):
            some = places[first : first + _ROWS_AT_ONCE]
            rows.append(SUPERSEDED, [_kept(reader.read_unchecked(place), place) for place in some])
        rows.sync()
    draft = journal.files.compaction_draft(*file, number)
    removed, size = _write_draft(journal, draft, file, rows.ends[file], places)
    disk.sync_folder(draft.parent)
    journal.commit([Compacted(*file, number, size, kept_at, removed)])
    rows.release(file)
    rows.ends[file] = size
    disk.replace(draft, path)


def _kept(row: bytes, place: Place) -> bytes:
    """A superseded row as it is kept: a line of its length, also where it was damaged."""
    if len(row) == place.length and row.endswith(b"\n") and row.count(b"\n") == 1:
        return row
    return b" " * (place.length - 1) + b"\n"


def _write_draft(
    journal: Journal, draft: Path, file: RowFile, end: int, places: Sequence[Place]
) -> tuple[tuple[Removed, ...], int]:
    """Write a file without the rows at these places; what was removed, and the draft's size."""
    disk, size, at, path = journal.disk, 0, 0, journal.files.row_file(*file)

    def others(offset: int) -> bool:
        current = (one.place for one in every_row(journal.files, file[0]))
        return any(place.file == file and place.offset == offset for place in current)

    removed: list[Removed] = []
    source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    target = disk.open(draft)
    try:
        os.fchmod(target, os.fstat(source).st_mode & 0o777)
        disk.cut(target, 0)
        # The rows of a compressed frame together; a plain row is a frame.
        for (offset, extent), group in groupby(places, lambda place: (place.offset, place.extent)):
            rows = list(group)
            size += _copy(journal, source, at, offset, target, size)
            left = b""  # of a plain row
            if is_compressed(journal.files, file):
                left = _without(os.pread(source, extent, offset), rows, path, others)
            disk.write(target, left, size)
            removed += [
                Removed(row.offset, row.inner, row.length, extent, len(left)) for row in rows
            ]
            at, size = offset + extent, size + len(left)
        size += _copy(journal, source, at, end, target, size)
        disk.sync(target)
    finally:
        os.close(source)
        os.close(target)
    return tuple(removed), size


def _copy(journal: Journal, source: int, begin: int, end: int, target: int, offset: int) -> int:
    """Copy bytes from one file to an offset in another; how many."""
    at = begin
    while at < end:
        data = os.pread(source, min(_CHUNK, end - at), at)
        if not data:
            raise UserError(
                f"{journal.files.rows}: another program truncated this file during the compaction. "
                "Restore the file from a copy"
            )
        journal.disk.write(target, data, offset + at - begin)
        at += len(data)
    return end - begin


def _without(
    frame: bytes, rows: Sequence[Place], path: Path, others: Callable[[int], bool]
) -> bytes:
    """A compressed frame without some of its rows; nothing where no row is left. `others`: whether
    the frame at a byte of the file has current rows.
    """
    zstd = Zstd()
    try:
        content = zstd.decompress(frame)
    except ValueError as error:
        if not others(rows[0].offset):
            return b""  # damaged, and none of its rows is current
        raise UserError(
            f"{path}: the rows at byte {rows[0].offset} cannot be read: {error}"
        ) from None
    kept, at = [], 0
    for row in rows:
        kept.append(content[at : row.inner])
        at = row.inner + row.length
    kept.append(content[at:])
    left = b"".join(kept)
    return zstd.compress(left) if left.strip() else b""
