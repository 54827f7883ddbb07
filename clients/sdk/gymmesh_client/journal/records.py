"""What a journal says, and the bytes that say it. Pure; docs/journal.md has the format.

A record is its type (1 byte), the length of its body (4 bytes) and the body. All numbers are
little-endian. A reader skips records of a type from 128 on that it does not know, and refuses
other unknown ones: they might change what is current.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Iterator
from itertools import starmap
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from gymmesh_client.journal.keys import KEY_BYTES

FORMAT: Final = 1

# Lanes: the files that rows are in.
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
# An outcome's head, body and place in one, because it is most frequent.
_OUTCOME_RECORD: Final = struct.Struct(f"<BI{KEY_BYTES}sIBB2xB3xIQIIII")
_OUTCOME_BYTES: Final = _OUTCOME.size + _PLACE.size
_SUPERSEDED: Final = struct.Struct(f"<{KEY_BYTES}sIB3x")
_RESERVED: Final = struct.Struct(f"<{KEY_BYTES}sI")
_ATTEMPT: Final = struct.Struct(f"<{KEY_BYTES}sIB3x")
_END: Final = struct.Struct("<B3xIQ")

(
    _SESSION,
    RESERVED_TYPE,
    _FAILED_ATTEMPT,
    OUTCOME_TYPE,
    _SUPERSEDE,
    _ERASE,
    _RUN_ENDED,
    RELEASED_TYPE,
    REWRITTEN_TYPE,
) = range(1, 10)
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


class Place(NamedTuple):
    """Where a row is.

    Attributes:
        lane: ROWS, FAILURES or SUPERSEDED.
        shard: the number of the lane's file.
        offset: bytes from the file's start to the row, or to the compressed frame that holds it.
        inner: bytes from the start of what the frame holds to the row; 0 when not compressed.
        length: bytes of the row, its newline included.
        extent: bytes from `offset` to the end of the row or frame, in the file.
        crc: CRC-32 of the row, its newline included.
    """

    lane: int
    shard: int
    offset: int
    inner: int
    length: int
    extent: int
    crc: int


PlaceNumbers: TypeAlias = tuple[int, int, int, int, int, int, int]
"""What a Place holds; a tuple of no name is made, and packed, at a fraction of the cost."""


class Session(NamedTuple):
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


class Outcome(NamedTuple):
    """The rollout's current outcome from now on. `boundary` is 0 for a completed one."""

    key: bytes
    attempt: int
    status: int
    boundary: int
    place: Place


class SomeOutcome(Protocol):
    """An outcome, wherever its row is."""

    @property
    def key(self) -> bytes: ...
    @property
    def attempt(self) -> int: ...
    @property
    def status(self) -> int: ...
    @property
    def boundary(self) -> int: ...


class Superseded(NamedTuple):
    """An outcome is no longer current: where its row was, and where a copy of it is kept."""

    key: bytes
    attempt: int
    reason: int
    was: Place
    kept: Place


class Rewritten(NamedTuple):
    """A compressed frame as it is to be without its superseded rows.

    It is on disk here before it is written in its place, where a power cut in the middle would
    damage the frame's other rows. Without data the file is to end where the frame began.
    """

    lane: int
    shard: int
    offset: int
    data: bytes


class Erased(NamedTuple):
    """The rows superseded so far are gone from their files; `ends` are those files' sizes."""

    ends: tuple[tuple[int, int, int], ...]


class RunEnded(NamedTuple):
    """The collector closed the run, as JSON values."""

    info: dict[str, Any]


Record: TypeAlias = (
    Session
    | Reserved
    | Released
    | AttemptFailed
    | Outcome
    | Superseded
    | Rewritten
    | Erased
    | RunEnded
)


def encode_outcomes(outcomes: Iterable[SomeOutcome], places: Iterable[PlaceNumbers]) -> bytes:
    """The bytes of the records of outcomes, whose rows are in these places."""
    # Written out, since a run consists of them.
    pack, kind, size = _OUTCOME_RECORD.pack, OUTCOME_TYPE, _OUTCOME_BYTES
    records = [
        pack(kind, size, one.key, one.attempt, one.status, one.boundary, *place)
        for one, place in zip(outcomes, places, strict=True)
    ]
    return b"".join(records)


def encode(record: Record) -> bytes:
    """A record's bytes."""
    if isinstance(record, Outcome):
        return encode_outcomes((record,), (record.place,))
    if isinstance(record, Reserved):
        kind, body = RESERVED_TYPE, b"".join(starmap(_RESERVED.pack, record.attempts))
    elif isinstance(record, Released):
        kind, body = RELEASED_TYPE, b"".join(starmap(_RESERVED.pack, record.attempts))
    elif isinstance(record, AttemptFailed):
        kind, body = _FAILED_ATTEMPT, _ATTEMPT.pack(*record)
    elif isinstance(record, Superseded):
        places = _PLACE.pack(*record.was) + _PLACE.pack(*record.kept)
        kind, body = _SUPERSEDE, _SUPERSEDED.pack(*record[:3]) + places
    elif isinstance(record, Rewritten):
        kind, body = REWRITTEN_TYPE, _END.pack(*record[:3]) + record.data
    elif isinstance(record, Erased):
        kind, body = _ERASE, b"".join(_END.pack(*end) for end in record.ends)
    else:
        kind = _SESSION if isinstance(record, Session) else _RUN_ENDED
        body = json.dumps(record.info, sort_keys=True, separators=(",", ":")).encode()
    return _HEAD.pack(kind, len(body)) + body


def decode(payload: bytes) -> Iterator[Record]:
    """The records of a commit.

    Raises:
        BadRecord: one is damaged, or of a later format.
    """
    for kind, body in bodies(payload):
        if kind < _IGNORABLE:
            yield decode_one(kind, body)


def bodies(payload: bytes) -> Iterator[tuple[int, bytes]]:
    """The types and bodies of a commit's records. Raises BadRecord when one is cut short."""
    place, end, head = 0, len(payload), _HEAD.size
    while place < end:
        begin = place + head
        if begin > end:
            raise BadRecord("a record is cut short")
        kind, size = _HEAD.unpack_from(payload, place)
        place = begin + size
        if place > end:
            raise BadRecord("a record is longer than its commit")
        yield kind, payload[begin:place]


def decode_one(kind: int, body: bytes) -> Record:
    """A record of its type and body; raises BadRecord as `decode`."""
    try:
        if kind == OUTCOME_TYPE:
            key, attempt, status, boundary = _OUTCOME.unpack_from(body)
            return Outcome(
                key, attempt, status, boundary, Place(*_PLACE.unpack_from(body, _OUTCOME.size))
            )
        return _rare(kind, body)
    except (struct.error, ValueError, TypeError) as error:
        raise error if isinstance(error, BadRecord) else BadRecord(str(error)) from None


def _rare(kind: int, body: bytes) -> Record:
    if kind == RESERVED_TYPE:
        return Reserved(tuple(_RESERVED.iter_unpack(body)))
    if kind == RELEASED_TYPE:
        return Released(tuple(_RESERVED.iter_unpack(body)))
    if kind == _FAILED_ATTEMPT:
        return AttemptFailed(*_ATTEMPT.unpack(body))
    if kind == _SUPERSEDE:
        key, attempt, reason = _SUPERSEDED.unpack_from(body)
        was = Place(*_PLACE.unpack_from(body, _SUPERSEDED.size))
        kept = Place(*_PLACE.unpack_from(body, _SUPERSEDED.size + _PLACE.size))
        return Superseded(key, attempt, reason, was, kept)
    if kind == REWRITTEN_TYPE:
        lane, shard, offset = _END.unpack_from(body)
        return Rewritten(lane, shard, offset, body[_END.size :])
    if kind == _ERASE:
        return Erased(tuple(_END.iter_unpack(body)))
    if kind in (_SESSION, _RUN_ENDED):
        info = json.loads(body)
        if type(info) is not dict:
            raise BadRecord("a session is not a JSON object")
        return Session(checked_session(info)) if kind == _SESSION else RunEnded(info)
    raise BadRecord(f"a record of type {kind}, which a later version of gymmesh wrote")


def is_run_id(value: Any) -> bool:
    """Whether a value can be a run's id: it becomes part of file names."""
    return type(value) is str and _RUN_ID.fullmatch(value) is not None


def checked_session(info: dict[str, Any]) -> dict[str, Any]:
    """What a session says of a run, once it is what the collector goes by; anybody may have
    written the file. Raises BadRecord.
    """
    if not is_run_id(info.get("run_id")):
        raise BadRecord("its run_id is none")
    for key, least, most in _NUMBERS:
        value = info.get(key)
        if key in info and not (type(value) is int and least <= value <= most):
            raise BadRecord(f"its {key} is not a whole number from {least} to {most}")
    shard = info.get("shard")
    if shard is not None and not _is_shard(shard):
        raise BadRecord("its shard is no index and count")
    shard_rows, zstd = info.get("shard_rows"), info.get("zstd", False)
    if shard_rows is not None and not (type(shard_rows) is int and shard_rows > 0):
        raise BadRecord("its shard_rows is not a whole number from 1 on")
    if type(zstd) is not bool or type(info.get("identity", {})) is not dict:
        raise BadRecord("its zstd or identity is of another kind")
    return info


def _is_shard(value: Any) -> bool:
    whole = type(value) is list and [type(one) for one in value] == [int, int]
    return whole and 0 <= value[0] < value[1]


def encode_all(records: Iterable[Record]) -> bytes:
    """Several records' bytes."""
    return b"".join(map(encode, records))
