"""The journal sorted by rollout, so that one of a million is found in microseconds.

An index is a header (magic, the bytes of JSON that follow, the number of entries), the JSON
(what the journal said of the run, and how much of it was read) and the entries, in the order
of their keys. It holds nothing that the journal does not, so it is never repaired: one that
does not fit its journal is made anew. Memory does not grow with the journal: entries are first
dealt out to temporary files by the first byte of their keys, and each is sorted by itself.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from gymmesh_client.journal.frames import HEADER, Damage, scan
from gymmesh_client.journal.layout import OutputFiles
from gymmesh_client.journal.records import (
    AttemptFailed,
    BadRecord,
    Outcome,
    Place,
    Reserved,
    Superseded,
    decode,
)
from gymmesh_client.journal.state import RunState
from gymmesh_client.journal.store import mapped
from gymmesh_client.problems import UserError

_MAGIC: Final = b"\x89gymmesh index\n\x01\n"
_HEAD: Final = struct.Struct("<QQ")
_ENTRY: Final = struct.Struct("<16sIBBBBQIIQIIII")
_DEALT: Final = 256
_HAND_BYTES: Final = 1 << 14

# What an entry is.
CURRENT: Final = 1
SUPERSEDED_OUTCOME: Final = 2
FAILED_ATTEMPT: Final = 3
_NOWHERE: Final = Place(0, 0, 0, 0, 0, 0, 0)


class Entry(NamedTuple):
    """Something that became of an attempt.

    Attributes:
        kind: CURRENT, SUPERSEDED_OUTCOME or FAILED_ATTEMPT (and another one followed).
        status: COMPLETED or FAILED.
        why: why it was superseded, else 0.
        place: where its row is; a failed attempt that was tried again has none.
    """

    key: bytes
    attempt: int
    kind: int
    status: int
    boundary: int
    why: int
    time_unix_nano: int
    place: Place


class Index:
    """An index that is open. Use `open_index`."""

    def __init__(self, data: mmap.mmap, info: dict[str, Any], start: int, count: int) -> None:
        self.info = info
        self._data = data
        self._start = start
        self._count = count

    def __len__(self) -> int:
        return self._count

    def find(self, key: bytes) -> list[Entry]:
        """All that the journal says of a rollout, oldest first."""
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            if self._key(middle) < key:
                low = middle + 1
            else:
                high = middle
        found = []
        while low < self._count and self._key(low) == key:
            place = self._start + low * _ENTRY.size
            found.append(_unpack(self._data[place : place + _ENTRY.size]))
            low += 1
        return found

    def close(self) -> None:
        """Let the file go."""
        self._data.close()

    def _key(self, number: int) -> bytes:
        place = self._start + number * _ENTRY.size
        return self._data[place : place + 16]


def open_index(files: OutputFiles) -> Index:
    """The index of a run's journal as it is now, made anew when it is stale.

    Raises:
        UserError: there is no journal, or it is damaged.
        OSError: a file cannot be read.
    """
    try:
        fd = os.open(files.journal, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise UserError(
            f"{files.journal}: is missing, so {files.rows} is not the output of a run, or of one "
            "from before there was a journal; that one gets it when it is gone on with --resume"
        ) from None
    try:
        size = os.fstat(fd).st_size
        found = _open(files.index)
        if found is not None:
            if found.info["journal_bytes"] == size and found.info["digest"] == _digest(fd, size):
                return found
            found.close()
        return _build(files, fd)
    finally:
        os.close(fd)


def _open(path: Path) -> Index | None:
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None
    try:
        return _read(data)
    except (ValueError, struct.error, KeyError):
        data.close()
        return None


def _read(data: mmap.mmap) -> Index:
    place = len(_MAGIC)
    if data[:place] != _MAGIC:
        raise ValueError("not an index")
    size, count = _HEAD.unpack_from(data, place)
    start = place + _HEAD.size + size
    info = json.loads(data[place + _HEAD.size : start])
    if len(data) != start + count * _ENTRY.size:
        raise ValueError("cut short")
    return Index(data, info, start, count)


def _digest(fd: int, size: int) -> str:
    """Tells one journal of a size from another: its last bytes hold a checksum and a time."""
    return os.pread(fd, 64, max(0, size - 64)).hex()


def _build(files: OutputFiles, fd: int) -> Index:
    with mapped(fd) as data:
        # A copy in memory would be as large as the journal; the size is fixed by the mapping.
        size = len(data)
        folder = files.index.parent
        keep = os.access(folder, os.W_OK)
        where = folder if keep else None
        draft, name = tempfile.mkstemp(dir=where, prefix=files.index.name + ".")
        try:
            with os.fdopen(draft, "wb") as file, tempfile.TemporaryDirectory(dir=where) as dealt:
                os.fchmod(draft, os.fstat(fd).st_mode & 0o666)
                state = RunState()
                hands = _deal(files, data, state, Path(dealt))
                info = _info(state) | {"journal_bytes": size, "digest": _digest(fd, size)}
                _write(file, info, hands, Path(dealt))
            built = _open(Path(name))
            assert built is not None
            if keep:
                os.replace(name, files.index)
            else:
                os.unlink(name)
            return built
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _deal(files: OutputFiles, data: bytes | mmap.mmap, state: RunState, folder: Path) -> int:
    """Put each entry in the file of its key's first byte; the number of entries."""
    if data[: len(HEADER)] != HEADER:
        raise UserError(f"{files.journal}: is not a journal of this version of gymmesh")
    hands: list[bytearray] = [bytearray() for _ in range(_DEALT)]
    try:
        for frame in scan(data):
            for record in decode(frame.payload):
                if not isinstance(record, Reserved):
                    state.apply(record)
                packed = _entry_of(record, frame.time_unix_nano)
                if packed is not None:
                    hand = hands[packed[0]]
                    hand += packed
                    if len(hand) > _HAND_BYTES:
                        _spill(folder, packed[0], hand)
    except (Damage, BadRecord) as error:
        raise UserError(f"{files.journal}: is damaged: {error}") from None
    for number, hand in enumerate(hands):
        _spill(folder, number, hand)
    return _DEALT


def _entry_of(record: object, time_unix_nano: int) -> bytes | None:
    if isinstance(record, Outcome):
        head = (CURRENT, record.status, record.boundary, 0)
        return _pack(record.key, record.attempt, head, time_unix_nano, record.place)
    if isinstance(record, Superseded):
        head = (SUPERSEDED_OUTCOME, 0, 0, record.reason)
        return _pack(record.key, record.attempt, head, time_unix_nano, record.kept)
    if isinstance(record, AttemptFailed):
        head = (FAILED_ATTEMPT, 2, record.boundary, 0)
        return _pack(record.key, record.attempt, head, time_unix_nano, _NOWHERE)
    return None


def _pack(
    key: bytes, attempt: int, head: tuple[int, int, int, int], time_unix_nano: int, place: Place
) -> bytes:
    kind, status, boundary, why = head
    lane = place.lane << 4 | kind
    return _ENTRY.pack(key, attempt, lane, status, boundary, why, time_unix_nano, *place[1:], 0)


def _unpack(data: bytes) -> Entry:
    key, attempt, lane, status, boundary, why, time_unix_nano, *rest = _ENTRY.unpack(data)
    shard, offset, inner, length, extent, crc, _ = rest
    place = Place(lane >> 4, shard, offset, inner, length, extent, crc)
    return Entry(key, attempt, lane & 15, status, boundary, why, time_unix_nano, place)


def _spill(folder: Path, number: int, hand: bytearray) -> None:
    if hand:
        with (folder / str(number)).open("ab") as file:
            file.write(hand)
        hand.clear()


def _write(file: IO[bytes], info: dict[str, Any], hands: int, folder: Path) -> None:
    body = json.dumps(info).encode()
    file.write(_MAGIC + _HEAD.pack(len(body), 0) + body)
    count = 0
    for number in range(hands):
        for entry in _sorted_hand(folder / str(number)):
            file.write(entry)
            count += 1
    file.seek(len(_MAGIC))
    file.write(_HEAD.pack(len(body), count))


def _sorted_hand(path: Path) -> Iterator[bytes]:
    """A hand's entries by key, then age; outcomes that were superseded say so."""
    if not path.exists():
        return
    data = path.read_bytes()
    by_key: dict[bytes, list[bytes]] = {}
    for place in range(0, len(data), _ENTRY.size):
        entry = data[place : place + _ENTRY.size]
        entries = by_key.setdefault(entry[:16], [])
        if entry[20] & 15 == SUPERSEDED_OUTCOME:
            # Takes the place of the outcome that was current, and keeps what that was and when.
            was, now = _unpack(entries[-1]), _unpack(entry)
            head = (SUPERSEDED_OUTCOME, was.status, was.boundary, now.why)
            entries[-1] = _pack(was.key, was.attempt, head, was.time_unix_nano, now.place)
        else:
            entries.append(entry)
    for key in sorted(by_key):
        yield from by_key[key]


def _info(state: RunState) -> dict[str, Any]:
    return {
        "session": state.session,
        "ended": state.ended,
        "counts": {str(status): count for status, count in state.counts.items()},
        "ends": [[*file, end] for file, end in sorted(state.ends.items())],
        "to_erase": [list(place) for place in state.to_erase],
    }
