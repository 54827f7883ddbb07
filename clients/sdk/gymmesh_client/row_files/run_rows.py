"""The current rows of a run, one after another, each compared with the checksum in its log.

Every reader of a whole run goes through here: resuming, `open_run().rows()`, and by it profiles,
exports, merges and trackers. Single rows are compared by `row_files.RowReader`.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from gymmesh_client.log import FilePlaces, RunPlaces, opened
from gymmesh_client.log_records import ROWS, SUPERSEDED, Place, RowFile
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.problems import unreadable
from gymmesh_client.row_files.row_files import DamagedRow, open_row_file
from gymmesh_client.row_files.zstd import Zstd

_CHUNK: Final = 1 << 20


class StoredRow(NamedTuple):
    """A row as it stands in its file, and where that is."""

    line: bytes  # without its newline
    path: Path
    number: int  # of its line in the file, or in what a compressed file expands to, from 1

    @property
    def where(self) -> str:
        """The place for people: `rollouts.jsonl:3`."""
        return f"{self.path}:{self.number}"


class CheckedRow(NamedTuple):
    """A place, the number of its line from 1, and its row; None where the row was changed."""

    place: Place
    number: int
    line: bytes | None


def stored_rows(files: OutputFiles, kind: int) -> Iterator[StoredRow]:
    """The current rows of a kind (ROWS, FAILURES) in the order in which they were written.

    Raises UserError where a file cannot be read, or a row is not what was written there.
    """
    for place, number, line in every_row(files, kind):
        path = files.row_file(*place.file)
        if line is None:
            raise damaged_row(path, number)
        yield StoredRow(line, path, number)


def every_row(files: OutputFiles, kind: int) -> Iterator[CheckedRow]:
    """As `stored_rows`, rows that were changed included. `files`: laid out as the run is."""
    with opened(files) as log:
        places = RunPlaces(files)
        places.read(log)
        for file in sorted(one for one in places.by_file if one[0] == kind):
            with open_rows(places, file, log) as fd:
                yield from checked_rows(places, file, fd)


@contextlib.contextmanager
def open_rows(places: RunPlaces, file: RowFile, log: int) -> Iterator[int]:
    """A row file, open for reading, as the log places its rows, and also if it is compacted
    meanwhile. `log`: the run's journal, open for reading; what is new in it is taken in. Raises
    UserError where the file cannot be read.
    """
    with ExitStack() as stack:
        while True:
            known = places.state.compacted.get(file)
            try:
                fd = open_row_file(places.files, file, places.state.compacted)
            except OSError as error:
                raise unreadable(places.files.row_file(*file), error) from None
            stack.callback(os.close, fd)
            places.read(log)
            if places.state.compacted.get(file) == known:
                break
        yield fd


def checked_rows(places: RunPlaces, file: RowFile, fd: int, first: int = 0) -> Iterator[CheckedRow]:
    """The current rows of a file that is open, from this number on (from 0). Raises UserError where
    it cannot be read.
    """
    read = _packed if is_compressed(places.files, file) else _plain
    try:
        yield from read(fd, places.current(file, first))
    except OSError as error:
        raise unreadable(places.files.row_file(*file), error) from None


def is_compressed(files: OutputFiles, file: RowFile) -> bool:
    """Whether a row file of a run has zstd frames; failures and superseded rows are plain."""
    return file[0] == ROWS and files.compressed


def damaged_row(path: Path, number: int) -> DamagedRow:
    """The error for a row that was changed after it was written."""
    return DamagedRow(
        f"{path}:{number}: the row was changed after it was written: its checksum differs from the "
        "checksum in the journal. Restore the file from a copy, or run the changed rollouts again "
        "with --resume --retry damaged"
    )


def line_number(files: OutputFiles, place: Place) -> int:
    """The number, from 1, of the line that a row is in. Raises UserError where the log cannot be
    read, and OSError.
    """
    if place.kind == SUPERSEDED:
        return 1 + _newlines(files.superseded, place.offset)
    places = RunPlaces(files)
    with opened(files) as log:
        places.read(log)
    found = places.by_file.get(place.file, FilePlaces()).places()
    before = (place.offset, place.inner)
    return 1 + sum(1 for one in found if (one.offset, one.inner) < before)


def _newlines(path: Path, end: int) -> int:
    """How many lines end in a file's first bytes. Raises OSError."""
    found, left = 0, end
    with path.open("rb") as file:
        while data := file.read(min(_CHUNK, left)):
            found += data.count(b"\n")
            left -= len(data)
    return found


def _plain(fd: int, rows: Iterator[tuple[int, Place]]) -> Iterator[CheckedRow]:
    data, start = b"", 0
    for number, place in rows:
        at = place.offset - start
        if not 0 <= at <= len(data) - place.length:
            data = os.pread(fd, max(_CHUNK, place.length), place.offset)
            start, at = place.offset, 0
        yield _checked(number, place, data[at : at + place.length])


def _packed(fd: int, rows: Iterator[tuple[int, Place]]) -> Iterator[CheckedRow]:
    zstd = Zstd()
    for (offset, extent), group in groupby(rows, lambda one: _FRAME(one[1])):
        content = b""
        with contextlib.suppress(ValueError):  # then no row of it is what was written
            content = zstd.decompress(os.pread(fd, extent, offset))
        for number, place in group:
            yield _checked(number, place, content[place.inner : place.inner + place.length])


_FRAME: Final = attrgetter("offset", "extent")


def _checked(number: int, place: Place, row: bytes) -> CheckedRow:
    whole = len(row) == place.length and zlib.crc32(row) == place.crc
    return CheckedRow(place, number + 1, row.rstrip(b"\n") if whole else None)
