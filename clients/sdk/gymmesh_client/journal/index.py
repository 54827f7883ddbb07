"""The journal sorted by rollout, so that one of a million is found in microseconds.

An index is a header (magic, the bytes of JSON that follow, the number of entries), the JSON
(what the journal said of the run, and how much of it was read) and the entries, in the order
of their keys. It holds nothing that the journal does not, so it is never repaired: one that
does not fit its journal is made anew. Memory does not grow with the journal: entries are dealt
out by the first byte of their keys, to temporary files once they are many, and each hand is sorted
by itself. A short run makes no such file: making 256 costs the system more than all the rest.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from gymmesh_client.journal.layout import OutputFiles
from gymmesh_client.journal.records import (
    COMPLETED,
    FAILED,
    OUTCOME_TYPE,
    PLACE_BYTES,
    RECORD_HEAD_BYTES,
    RELEASED_TYPE,
    RESERVED_TYPE,
    REWRITTEN_TYPE,
    ROWS,
    AttemptFailed,
    BadRecord,
    Erased,
    Place,
    Record,
    Superseded,
    are_outcomes,
    bodies,
    checked_session,
    decode_one,
    pack_place,
    unpack_place,
)
from gymmesh_client.journal.state import RunState
from gymmesh_client.journal.store import frames_of, mapped
from gymmesh_client.problems import UserError

INDEX_HEADER: Final = b"\x89gymmesh index\n\x01\n"
_HEAD: Final = struct.Struct("<QQ")
_ENTRY: Final = struct.Struct("<16sIBBBBQ")
_DEALT: Final = 256
_HELD_BYTES: Final = 1 << 23
_ENTRY_BYTES: Final = _ENTRY.size + PLACE_BYTES
# The record of an outcome: key and attempt, status and boundary, and its place in two.
_FILE_BYTES: Final = 8
_OUTCOME_PARTS: Final = struct.Struct(
    f"<{RECORD_HEAD_BYTES}x20s2s2x{_FILE_BYTES}s{PLACE_BYTES - _FILE_BYTES}s"
)
# In an entry: its key, and which byte tells its kind.
_KEY: Final = itemgetter(slice(16))
_KIND: Final = 20

# What an entry is.
CURRENT: Final = 1
SUPERSEDED_OUTCOME: Final = 2
FAILED_ATTEMPT: Final = 3
_CURRENT: Final = bytes([CURRENT])
_NOT_INDEXED: Final = frozenset((RESERVED_TYPE, RELEASED_TYPE, REWRITTEN_TYPE, *range(128, 256)))


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
            place = self._start + low * _ENTRY_BYTES
            found.append(_unpack(self._data[place : place + _ENTRY_BYTES]))
            low += 1
        return found

    def close(self) -> None:
        """Let the file go."""
        self._data.close()

    def _key(self, number: int) -> bytes:
        place = self._start + number * _ENTRY_BYTES
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
    except (ValueError, struct.error, KeyError, TypeError, AttributeError):
        data.close()
        return None


def _read(data: mmap.mmap) -> Index:
    place = len(INDEX_HEADER)
    if data[:place] != INDEX_HEADER:
        raise ValueError("not an index")
    size, count = _HEAD.unpack_from(data, place)
    start = place + _HEAD.size + size
    info = json.loads(data[place + _HEAD.size : start])
    _check_info(info)
    if len(data) != start + count * _ENTRY_BYTES:
        raise ValueError("cut short")
    return Index(data, info, start, count)


def _check_info(info: Any) -> None:
    """Raises ValueError or KeyError for what `_Dealer.info` would not say."""
    if type(info) is not dict or type(info["session"]) is not dict:
        raise ValueError("it says nothing of the run")
    checked_session(info["session"])
    numbers = [*info["counts"].values(), *chain.from_iterable(info["ends"] + info["to_erase"])]
    if any(type(number) is not int or number < 0 for number in numbers):
        raise ValueError("a number is none")
    if any(len(end) != 3 for end in info["ends"]) or any(len(at) != 7 for at in info["to_erase"]):
        raise ValueError("a place is none")


def _digest(fd: int, size: int) -> str:
    """Tells one journal of a size from another: its last bytes hold a checksum and a time."""
    return os.pread(fd, 64, max(0, size - 64)).hex()


def _build(files: OutputFiles, fd: int) -> Index:
    folder = files.index.parent
    keep = os.access(folder, os.W_OK)
    where = folder if keep else None
    draft, name = tempfile.mkstemp(dir=where, prefix=files.index.name + ".")
    try:
        with os.fdopen(draft, "wb") as file, tempfile.TemporaryDirectory(dir=where) as dealt:
            os.fchmod(draft, os.fstat(fd).st_mode & 0o666)
            with mapped(fd) as data:
                size, dealer = len(data), _Dealer(Path(dealt))
                dealer.take(data, files)
            info = dealer.info() | {"journal_bytes": size, "digest": _digest(fd, size)}
            _write(file, info, dealer.hands())
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


class _Dealer:
    """Puts each entry in the hand of its key's first byte, and keeps what is said of the run.

    It works on records' bytes, because making objects of a million takes longer than all else.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hands = [bytearray() for _ in range(_DEALT)]
        self._held = 0
        self._state = RunState()
        self._completed = self._failed = 0
        # Of each file the last row's place, in two; files only grow, so it tells where they end.
        self._last: dict[bytes, bytes] = {}

    def take(self, data: bytes | mmap.mmap, files: OutputFiles) -> None:
        """Read a journal. Raises UserError when it is damaged."""
        try:
            for frame in frames_of(data, files):
                when = frame.time_unix_nano.to_bytes(8, "little")
                payload = frame.payload
                if are_outcomes(payload):
                    self._outcomes(payload, when)
                    continue
                for kind, body in bodies(payload):
                    if kind == OUTCOME_TYPE:
                        self._outcomes(bytes(RECORD_HEAD_BYTES) + body, when)
                    elif kind not in _NOT_INDEXED:
                        self._other(decode_one(kind, body), when)
        except (BadRecord, struct.error) as error:
            raise UserError(f"{files.journal}: is damaged: {error}") from None

    def info(self) -> dict[str, Any]:
        """What the journal said of the run, as JSON values."""
        self._settle_ends()
        return {
            "session": self._state.session,
            "ended": self._state.ended,
            "counts": {str(COMPLETED): self._completed, str(FAILED): self._failed},
            "ends": [[*file, end] for file, end in sorted(self._state.ends.items())],
            "to_erase": [list(place) for place in self._state.to_erase],
        }

    def hands(self) -> Iterator[bytes]:
        """All entries, a hand at a time."""
        for number, held in enumerate(self._hands):
            path = self._folder / str(number)
            yield path.read_bytes() + held if path.exists() else bytes(held)

    def _outcomes(self, records: bytes, when: bytes) -> None:
        """Take the records of outcomes; a journal is little else, so their parts are not looked at
        one by one.
        """
        hands, last, not_superseded = self._hands, self._last, b"\0" + when
        completed = count = 0
        for head, said, file, rest in _OUTCOME_PARTS.iter_unpack(records):
            count += 1
            completed += said[0] == COMPLETED
            last[file] = rest
            hands[head[0]] += b"".join((head, _CURRENT, said, not_superseded, file, rest))
        self._completed += completed
        self._failed += count - completed
        self._hold(count)

    def _other(self, record: Record, when: bytes) -> None:
        if isinstance(record, Superseded):
            completed = record.was.lane == ROWS
            self._completed -= completed
            self._failed -= not completed
            kept = pack_place(record.kept)
            self._last[kept[:_FILE_BYTES]] = kept[_FILE_BYTES:]
            self._state.to_erase.append(record.was)
            head = (record.key, record.attempt, SUPERSEDED_OUTCOME, 0, 0, record.reason, 0)
            self._deal(_ENTRY.pack(*head)[:-8] + when + kept)
        elif isinstance(record, AttemptFailed):
            head = (record.key, record.attempt, FAILED_ATTEMPT, FAILED, record.boundary, 0, 0)
            self._deal(_ENTRY.pack(*head)[:-8] + when + bytes(PLACE_BYTES))
        else:
            if isinstance(record, Erased):
                self._settle_ends()
            self._state.apply(record)

    def _settle_ends(self) -> None:
        for file, rest in self._last.items():
            place = unpack_place(file + rest)
            self._state.ends[place.lane, place.shard] = place.offset + place.extent
        self._last.clear()

    def _deal(self, entry: bytes) -> None:
        self._hands[entry[0]] += entry
        self._hold(1)

    def _hold(self, more: int) -> None:
        self._held += more * _ENTRY_BYTES
        if self._held >= _HELD_BYTES:
            self._spill()

    def _spill(self) -> None:
        for number, hand in enumerate(self._hands):
            with (self._folder / str(number)).open("ab") as file:
                file.write(hand)
            hand.clear()
        self._held = 0


def _unpack(data: bytes) -> Entry:
    key, attempt, kind, status, boundary, why, when = _ENTRY.unpack_from(data)
    place = unpack_place(data[_ENTRY.size :])
    return Entry(key, attempt, kind, status, boundary, why, when, place)


def _write(file: IO[bytes], info: dict[str, Any], hands: Iterable[bytes]) -> None:
    body = json.dumps(info).encode()
    file.write(INDEX_HEADER + _HEAD.pack(len(body), 0) + body)
    count = 0
    for hand in hands:
        entries = _sorted(hand)
        file.write(b"".join(entries))
        count += len(entries)
    file.seek(len(INDEX_HEADER))
    file.write(_HEAD.pack(len(body), count))


def _sorted(data: bytes) -> list[bytes]:
    """A hand's entries by key, then age; outcomes that were superseded say so."""
    entries = [data[at : at + _ENTRY_BYTES] for at in range(0, len(data), _ENTRY_BYTES)]
    entries.sort(key=_KEY)  # those of a rollout stay in the order in which they came
    kinds = data[_KIND::_ENTRY_BYTES]
    return _merged(entries) if SUPERSEDED_OUTCOME in kinds else entries


def _merged(entries: Iterable[bytes]) -> list[bytes]:
    """Sorted entries; one of an outcome that was superseded takes the place of the outcome that
    was current, and keeps what that was and when.
    """
    merged: list[bytes] = []
    for entry in entries:
        if entry[_KIND] == SUPERSEDED_OUTCOME:
            was = merged.pop() if merged else b""
            if _KEY(was) != _KEY(entry):
                raise BadRecord("an outcome is superseded that there was not")
            why, kept = entry[23:24], entry[-PLACE_BYTES:]
            entry = was[:_KIND] + entry[20:21] + was[21:23] + why + was[24:32] + kept
        merged.append(entry)
    return merged
