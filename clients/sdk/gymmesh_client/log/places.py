"""The places of a run's current rows, and their digests when written, read from its log only.

No derived data is read, so no error in derived data can hide or invent a row. Uses 32 bytes of
memory for each row. All readers of whole runs use it: `stored_rows`, and the page's index.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gymmesh_client import log_records as records
from gymmesh_client.log.frames import HEADER
from gymmesh_client.log.moves import Moves
from gymmesh_client.log.reading import frames_of, mapped, unnamed_run
from gymmesh_client.log.state import RunState
from gymmesh_client.log_records import Compacted, Place, RowFile, RunOpened, Superseded
from gymmesh_client.output_files import OutputFiles

_SKIPPED: Final = frozenset((records.RESERVED_TYPE, records.RELEASED_TYPE, *range(128, 256)))


class FilePlaces:
    """The rows of one file in the order in which they were written, superseded ones included."""

    def __init__(self) -> None:
        self._packed = bytearray()

    def __len__(self) -> int:
        return len(self._packed) // records.PLACE_BYTES

    def add(self, place: bytes) -> None:
        """One more, as the log has it."""
        self._packed += place

    def places(self, first: int = 0) -> Iterator[Place]:
        """Their places, from this one on."""
        return records.unpack_places(bytes(self._packed[first * records.PLACE_BYTES :]))

    def move(self, moves: Moves, file: RowFile) -> None:
        """The places after a compaction, without the removed rows."""
        moved = [moves.of(place) for place in self.places()]
        self._packed = bytearray(
            b"".join(records.pack_place(place) for place in moved if place.file == file)
        )


class RunPlaces:
    """The places of a run's rows, as far as its log was read.

    Attributes:
        files: the run's files, laid out as its log says.
        state: what the log says of the run, but for what it says of each rollout.
        position, sequence: where in the log to read on, and the number of the commit there.
        by_file: the rows, superseded ones included, by row file.
        changes: what was read and made rows no longer current (Superseded) or moved them
            (Compacted), in order; a reader that needs it empties it.
    """

    def __init__(self, files: OutputFiles) -> None:
        self.files = files
        self.state = RunState()
        self.position, self.sequence = len(HEADER), 0
        self.by_file: dict[RowFile, FilePlaces] = {}
        self.changes: list[Superseded | Compacted] = []
        self._superseded: set[tuple[int, int, int, int]] = set()

    def read(self, fd: int, until: int | None = None) -> None:
        """Take in what is new in the log, an open file; `until`: up to this byte, at which a commit
        ends. Raises UserError where the log is damaged or does not say what run it is of, and
        BadRecord.
        """
        with mapped(fd) as data:
            for frame in frames_of(data, self.files, self.position, self.sequence):
                for kind, body in records.bodies(frame.payload):
                    if kind == records.OUTCOME_TYPE:
                        self._outcome(body)
                    elif kind not in _SKIPPED:
                        self._record(records.decode_one(kind, body))
                self.position, self.sequence = frame.end, frame.sequence + 1
                if until is not None and frame.end >= until:
                    break
        if not self.state.session:
            raise unnamed_run(self.files)

    def current(self, file: RowFile, first: int = 0) -> Iterator[tuple[int, Place]]:
        """The current rows of a file from a number on, each with its number: how many rows the file
        has before it.
        """
        for number, place in enumerate(self.by_file[file].places(first), first):
            if not self.is_superseded(place):
                yield number, place

    def is_superseded(self, place: Place) -> bool:
        """Whether the row there is no longer current."""
        return (place.kind, place.shard, place.offset, place.inner) in self._superseded

    def _outcome(self, body: bytes) -> None:
        packed = records.place_of_outcome(body)
        (place,) = records.unpack_places(packed)
        self.state.reach(place.file, place.offset + place.extent)
        self.by_file.setdefault(place.file, FilePlaces()).add(packed)

    def _record(self, record: records.Record) -> None:
        if isinstance(record, Superseded):
            place = record.place
            self._superseded.add((place.kind, place.shard, place.offset, place.inner))
            self.state.superseded.append(place)
            self.changes.append(record)
        elif isinstance(record, Compacted):
            file = (record.kind, record.shard)
            if file in self.by_file:
                self.by_file[file].move(Moves(record), file)
            self._superseded = {one for one in self._superseded if one[:2] != file}
            self.state.apply_to_run(record)
            self.changes.append(record)
        else:
            self.state.apply_to_run(record)
            if isinstance(record, RunOpened):
                self.files = self.files.of_session(record.info)
