"""The journal's bytes: records there and back, torn tails, damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_client import log_records as rec
from gymmesh_client.log.frames import HEADER, Damage, encode_frame, scan
from gymmesh_client.log.moves import Moves
from gymmesh_client.log.state import RunState
from gymmesh_client.rollout_ids import rollout_id, rollout_key

KEYS = st.binary(min_size=16, max_size=16)
U32 = st.integers(0, 2**32 - 1)
PLACES = st.builds(
    rec.Place,
    st.integers(0, 2),
    U32,
    st.integers(0, 2**64 - 1),
    U32,
    U32,
    U32,
    U32,
)
PAIRS = st.lists(st.tuples(KEYS, U32), max_size=4).map(tuple)
BYTE = st.integers(0, 255)
INFO = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3)
RECORDS = st.one_of(
    INFO.map(lambda info: rec.RunOpened(info | {"run_id": "run-1"})),
    st.builds(rec.Reserved, PAIRS),
    st.builds(rec.Released, PAIRS),
    st.builds(rec.AttemptFailed, KEYS, U32, BYTE),
    st.builds(rec.CurrentOutcome, KEYS, U32, BYTE, BYTE, PLACES),
    st.builds(rec.Superseded, KEYS, U32, BYTE, PLACES),
    st.builds(
        rec.Compacted,
        BYTE,
        U32,
        U32,
        U32,
        U32,
        st.lists(st.builds(rec.Removed, U32, U32, U32, U32, U32), max_size=3).map(tuple),
    ),
    st.builds(rec.RunEnded, INFO),
)


def encoded(records: list[rec.Record]) -> bytes:
    return b"".join(map(rec.encode, records))


@given(st.lists(RECORDS, max_size=6))
def test_records_come_back(records: list[rec.Record]) -> None:
    assert list(rec.decode(encoded(records))) == records


@given(st.lists(RECORDS, min_size=1, max_size=3), st.data())
def test_a_record_cut_short_is_told(records: list[rec.Record], data: st.DataObject) -> None:
    payload = encoded(records)
    cut = data.draw(st.integers(1, len(payload) - 1))
    try:
        got = list(rec.decode(payload[:cut]))
    except rec.BadRecord:
        return
    assert got == records[: len(got)]
    assert len(got) < len(records)


def test_unknown_records_are_refused_unless_they_may_be_ignored() -> None:
    ignorable = b"\xc8\x02\x00\x00\x00hi"
    ended = rec.RunEnded({})
    assert list(rec.decode(ignorable + rec.encode(ended))) == [ended]
    with pytest.raises(rec.BadRecord, match=r"type 99.*another version"):
        list(rec.decode(b"\x63\x00\x00\x00\x00"))


def journal(*payloads: bytes) -> bytes:
    frames = [encode_frame(number, number * 7, one) for number, one in enumerate(payloads)]
    return HEADER + b"".join(frames)


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=4), st.data())
def test_a_torn_tail_ends_the_journal(payloads: list[bytes], data: st.DataObject) -> None:
    whole = journal(*payloads)
    before = len(journal(*payloads[:-1]))
    cut = data.draw(st.integers(before, len(whole) - 1))
    garbage = data.draw(st.binary(max_size=len(whole) - cut))
    got = [frame.payload for frame in scan(whole[:cut] + garbage)]
    if whole[:cut] + garbage != whole:
        assert got == payloads[:-1]


@given(st.lists(st.binary(max_size=30), min_size=2, max_size=4), st.data())
def test_damage_before_the_tail_is_refused(payloads: list[bytes], data: st.DataObject) -> None:
    whole = bytearray(journal(*payloads))
    place = data.draw(st.integers(len(HEADER), len(journal(*payloads[:-1])) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Damage, match=r"commit \d+, at byte \d+, is damaged"):
        list(scan(bytes(whole)))


PLACE = rec.Place(rec.ROWS, 0, 0, 0, 10, 10, 1)
KEY = rollout_key(rollout_id("r", "t", 0))


def test_a_second_outcome_is_a_contradiction() -> None:
    state = RunState()
    state.apply(rec.CurrentOutcome(KEY, 1, rec.COMPLETED, 0, PLACE))
    with pytest.raises(rec.BadRecord, match="second outcome"):
        state.apply(rec.CurrentOutcome(KEY, 2, rec.COMPLETED, 0, PLACE))
    state.apply(rec.Superseded(KEY, 1, rec.RETRY, PLACE))
    assert (state.status(KEY), state.counts[rec.COMPLETED]) == (0, 0)
    with pytest.raises(rec.BadRecord, match="not current"):
        state.apply(rec.Superseded(KEY, 1, rec.RETRY, PLACE))
    state.apply(rec.CurrentOutcome(KEY, 2, rec.FAILED, 1, PLACE))
    assert (state.status(KEY), state.attempt(KEY)) == (rec.FAILED, 2)


def test_attempts_count_on_whatever_became_of_them() -> None:
    state = RunState()
    state.apply(rec.Reserved(((KEY, 1),)))
    assert state.attempt(KEY) == 1
    state.apply(rec.Released(((KEY, 1),)))
    assert state.attempt(KEY) == 0
    state.apply(rec.Reserved(((KEY, 1),)))
    state.apply(rec.AttemptFailed(KEY, 1, 2))
    state.apply(rec.Reserved(((KEY, 2),)))
    state.apply(rec.Released(((KEY, 1),)))  # an old one changes nothing
    assert (state.attempt(KEY), state.status(KEY)) == (2, 0)


def test_rows_move_up_when_others_are_removed() -> None:
    row = rec.Place(rec.FAILURES, 0, 0, 0, 10, 10, 1)
    rows = [row._replace(offset=10 * number) for number in range(5)]
    removed = tuple(rec.Removed(at, 0, 10, 10, 0) for at in (10, 30))
    moves = Moves(rec.Compacted(rec.FAILURES, 0, 1, 30, 100, removed))
    kept = row._replace(kind=rec.SUPERSEDED)
    assert [moves.of(one) for one in rows] == [
        row,
        kept._replace(offset=100),
        row._replace(offset=10),
        kept._replace(offset=110),
        row._replace(offset=20),
    ]


def test_rows_move_within_a_compressed_frame() -> None:
    first = rec.Place(rec.ROWS, 2, 0, 0, 10, 50, 1)
    frame = [first._replace(inner=10 * number) for number in range(3)]
    behind = first._replace(offset=50, extent=70)
    removed = tuple(rec.Removed(0, inner, 10, 50, 20) for inner in (0, 10))
    moves = Moves(rec.Compacted(rec.ROWS, 2, 1, 90, 0, removed))
    copy = first._replace(kind=rec.SUPERSEDED, shard=0, extent=10)
    assert [moves.of(one) for one in (*frame, behind)] == [
        copy,
        copy._replace(offset=10),
        first._replace(extent=20),
        behind._replace(offset=20),
    ]
