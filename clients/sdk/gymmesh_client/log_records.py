"""What a journal says, and the bytes that say it. Pure; docs/reference/journal.md has the format.

A record is its type (1 byte), the length of its body (4 bytes) and the body. All numbers are
little-endian. A reader skips records of a type from 128 on that it does not know, and refuses
other unknown ones: they might change what is current.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from itertools import starmap
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec

from gymmesh_client.rollout_ids import KEY_BYTES

FORMAT: Final = 1

# Kinds of row files.
ROWS: Final = 0
FAILURES: Final = 1
SUPERSEDED: Final = 2

# What an outcome is.
COMPLETED: Final = 1
FAILED: Final = 2

# Why an outcome was superseded.
RETRY: Final = 1
LATE_VERIFICATION: Final = 2
NEW_VERIFICATION: Final = 3
REASONS: Final = {
    RETRY: "a retry was asked for",
    LATE_VERIFICATION: "a late verification",
    NEW_VERIFICATION: "a new verification",
}

_HEAD: Final = struct.Struct("<BI")
_PLACE: Final = struct.Struct("<B3xIQIIII")
_OUTCOME: Final = struct.Struct(f"<{KEY_BYTES}sIBB2x")
_SUPERSEDED: Final = struct.Struct(f"<{KEY_BYTES}sIB3x")
_RESERVED: Final = struct.Struct(f"<{KEY_BYTES}sI")
_ATTEMPT: Final = struct.Struct(f"<{KEY_BYTES}sIB3x")
_COMPACTED: Final = struct.Struct("<B3xIIQQ")
_REMOVED: Final = struct.Struct("<QIIII")

# 5, 6 and 9 were used before the first release.
_SESSION, RESERVED_TYPE, _FAILED_ATTEMPT, OUTCOME_TYPE = 1, 2, 3, 4
_RUN_ENDED, RELEASED_TYPE, _SUPERSEDED_TYPE, _COMPACTED_TYPE = 7, 8, 10, 11
SESSION_TYPE: Final = bytes([_SESSION])
_IGNORABLE: Final = 128

_RUN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
# Of a session: what is a number, and its bounds.
_NUMBERS: Final = (
    ("session", 1, 2**31),
    ("repeats", 1, 2**31),
    ("skipped", 0, 2**63),
    ("tasks", 0, 2**63),
)


class BadRecord(ValueError):
    """A record that does not say what its type says, or one of a later format."""


Whole = Annotated[int, msgspec.Meta(ge=0)]
_Bytes = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]


class Place(NamedTuple):
    """Where a row is."""

    kind: Whole  # of its file: ROWS, FAILURES or SUPERSEDED
    shard: Whole  # the number of its file among those of the kind
    offset: Whole  # bytes from the file's start to the row, or to the frame that holds it
    inner: _Bytes  # bytes from the start of what the frame holds to the row; 0: not compressed
    length: _Bytes  # bytes of the row, its newline included
    extent: _Bytes  # bytes from `offset` to the end of the row or frame, in the file
    crc: _Bytes  # CRC-32 of the row, its newline included

    @property
    def file(self) -> RowFile:
        """The file that it is in."""
        return self.kind, self.shard


RowFile: TypeAlias = tuple[int, int]
"""A row file: its kind, and its number among those of the kind."""


class RunOpened(NamedTuple):
    """A collector opened the run: its identity and layout, as JSON values."""

    info: dict[str, Any]


class Reserved(NamedTuple):
    """These attempts may be sent from now on, and their numbers are used up."""

    attempts: tuple[tuple[bytes, int], ...]


class Released(NamedTuple):
    """These reserved attempts were never sent."""

    attempts: tuple[tuple[bytes, int], ...]


class AttemptFailed(NamedTuple):
    """An attempt failed and another one, with the next number, follows."""

    key: bytes
    attempt: int
    boundary: int


class CurrentOutcome(NamedTuple):
    """The rollout's current outcome from now on. `boundary` is 0 for a completed one."""

    key: bytes
    attempt: int
    status: int
    boundary: int
    place: Place


class Superseded(NamedTuple):
    """An outcome is no longer current; its row stays in its file until that is compacted."""

    key: bytes
    attempt: int
    reason: int
    place: Place


class Removed(NamedTuple):
    """A superseded row that a compaction dropped, and where it was; see Place."""

    offset: int
    inner: int
    length: int
    extent: int
    left: int  # bytes of the compressed frame without its dropped rows; 0 where nothing is left


class Compacted(NamedTuple):
    """A row file is replaced by one without its superseded rows.

    The new file is on disk beside the old one before this is written, and is renamed after.
    """

    kind: int
    shard: int
    number: int  # of this compaction in the run, from 1; part of the new file's temporary name
    size: int  # bytes of the new file
    kept_at: int  # where the dropped rows are now in the SUPERSEDED file, one after another
    removed: tuple[Removed, ...]  # these rows, in the order of the old file


class RunEnded(NamedTuple):
    """The collector closed the run, as JSON values."""

    info: dict[str, Any]


Record: TypeAlias = (
    RunOpened
    | Reserved
    | Released
    | AttemptFailed
    | CurrentOutcome
    | Superseded
    | Compacted
    | RunEnded
)


def encode(record: Record) -> bytes:
    """A record's bytes."""
    if isinstance(record, CurrentOutcome):
        kind, body = OUTCOME_TYPE, _OUTCOME.pack(*record[:4]) + _PLACE.pack(*record.place)
    elif isinstance(record, Reserved | Released):
        kind = RESERVED_TYPE if isinstance(record, Reserved) else RELEASED_TYPE
        body = b"".join(starmap(_RESERVED.pack, record.attempts))
    elif isinstance(record, AttemptFailed):
        kind, body = _FAILED_ATTEMPT, _ATTEMPT.pack(*record)
    elif isinstance(record, Superseded):
        kind, body = _SUPERSEDED_TYPE, _SUPERSEDED.pack(*record[:3]) + _PLACE.pack(*record.place)
    elif isinstance(record, Compacted):
        removed = b"".join(starmap(_REMOVED.pack, record.removed))
        kind, body = _COMPACTED_TYPE, _COMPACTED.pack(*record[:5]) + removed
    else:
        kind = _SESSION if isinstance(record, RunOpened) else _RUN_ENDED
        body = json.dumps(record.info, sort_keys=True, separators=(",", ":")).encode()
    return _HEAD.pack(kind, len(body)) + body


def decode(payload: bytes) -> Iterator[Record]:
    """The records of a commit. Raises BadRecord where one is damaged, or of a later format."""
    for kind, body in bodies(payload):
        if kind < _IGNORABLE:
            yield decode_one(kind, body)


def bodies(payload: bytes) -> Iterator[tuple[int, bytes]]:
    """The types and bodies of a commit's records. Raises BadRecord when one is cut short."""
    place, end, head = 0, len(payload), _HEAD.size
    while place < end:
        begin = place + head
        if begin > end:
            raise BadRecord("a record is truncated")
        kind, size = _HEAD.unpack_from(payload, place)
        place = begin + size
        if place > end:
            raise BadRecord("a record is longer than its commit")
        yield kind, payload[begin:place]


def decode_one(kind: int, body: bytes) -> Record:
    """A record of its type and body; raises BadRecord as `decode`."""
    try:
        if kind == OUTCOME_TYPE:
            return CurrentOutcome._make((*_OUTCOME.unpack_from(body), _place(body, _OUTCOME.size)))
        if kind in (RESERVED_TYPE, RELEASED_TYPE):
            attempts = tuple(_RESERVED.iter_unpack(body))
            return Reserved(attempts) if kind == RESERVED_TYPE else Released(attempts)
        if kind == _FAILED_ATTEMPT:
            return AttemptFailed(*_ATTEMPT.unpack(body))
        if kind == _SUPERSEDED_TYPE:
            place = _place(body, _SUPERSEDED.size)
            return Superseded._make((*_SUPERSEDED.unpack_from(body), place))
        if kind == _COMPACTED_TYPE:
            removed = map(Removed._make, _REMOVED.iter_unpack(body[_COMPACTED.size :]))
            return Compacted._make((*_COMPACTED.unpack_from(body), tuple(removed)))
        if kind in (_SESSION, _RUN_ENDED):
            info = json.loads(body)
            if type(info) is not dict:
                raise BadRecord("a session is not a JSON object")
            return RunOpened(checked_session(info)) if kind == _SESSION else RunEnded(info)
    except BadRecord:
        raise
    except (struct.error, ValueError, TypeError) as error:
        raise BadRecord(str(error)) from None
    raise BadRecord(f"a record of type {kind}, written by another version of gymmesh")


def _place(body: bytes, start: int) -> Place:
    return Place._make(_PLACE.unpack_from(body, start))


PLACE_BYTES: Final = _PLACE.size
"""Bytes of a place."""


def place_of_outcome(body: bytes) -> bytes:
    """The place in the body of an outcome, packed. Raises BadRecord where there is none."""
    if len(body) < _OUTCOME.size + PLACE_BYTES:
        raise BadRecord("an outcome is truncated")
    return body[_OUTCOME.size : _OUTCOME.size + PLACE_BYTES]


def pack_place(place: Place) -> bytes:
    """A place's bytes."""
    return _PLACE.pack(*place)


def unpack_places(packed: bytes) -> Iterator[Place]:
    """The places whose bytes these are."""
    return map(Place._make, _PLACE.iter_unpack(packed))


def is_run_id(value: Any) -> bool:
    """Whether a value can be a run's id: it becomes part of file names."""
    return type(value) is str and _RUN_ID.fullmatch(value) is not None


def checked_session(info: dict[str, Any]) -> dict[str, Any]:
    """What a session says of a run, once it is what the collector goes by; anybody may have
    written the file. Raises BadRecord.
    """
    if not is_run_id(info.get("run_id")):
        raise BadRecord("the run_id of the session is invalid")
    for key, least, most in _NUMBERS:
        value = info.get(key)
        if key in info and not (type(value) is int and least <= value <= most):
            raise BadRecord(f"the session's '{key}' is not a whole number from {least} to {most}")
    shard = info.get("shard")
    if shard is not None and not _is_shard(shard):
        raise BadRecord("the shard of the session is not an index and a count")
    shard_rows, zstd = info.get("shard_rows"), info.get("zstd", False)
    if shard_rows is not None and not (type(shard_rows) is int and shard_rows > 0):
        raise BadRecord("the shard_rows of the session is not a whole number of at least 1")
    if type(zstd) is not bool or type(info.get("identity", {})) is not dict:
        raise BadRecord(
            "the session's zstd must be true or false, and the session's identity must be an object"
        )
    return info


def _is_shard(value: Any) -> bool:
    whole = type(value) is list and [type(one) for one in value] == [int, int]
    return whole and 0 <= value[0] < value[1]
