"""The quick way to read an answer: taken for plain ones alone, and it says what the parser says."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gymmesh_model.http1 import Answer, Http1Error
from gymmesh_model.http1.answer import Bounds, PlainAnswers
from tests.unit.model.http1.test_http1_parser import GOOD, REFUSED, TOO_LARGE

OK = b"HTTP/1.1 200 OK\r\n"
BOUNDS = Bounds(max_body=1_000, max_head=2_000)

PLAIN: dict[str, bytes] = {
    "a body": OK + b"Content-Length: 5\r\n\r\nhello",
    "no body": OK + b"Content-Length: 0\r\n\r\n",
    "any case, any blanks": OK + b"cONTENT-lENGTH:\t 5 \t\r\n\r\nhello",
    "no reason": b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx",
    "other headers on both sides": (
        OK + b"Content-Type: a/b; c=d\r\nX:\r\nContent-Length: 1\r\nDate: \xff\xc3\xa4:;\t\r\n\r\nx"
    ),
    "names that begin alike": (
        OK + b"Content-Lengths: 9\r\nConnections: close\r\nContent-Length: 1\r\n\r\nx"
    ),
    "kept in words": OK + b"connection: Keep-Alive \r\nContent-Length: 1\r\n\r\nx",
    "leading zeros": OK + b"Content-Length: 0001\r\n\r\nx",
    "a body like a head": OK + b"Content-Length: 8\r\n\r\n\r\n\r\nX: y",
    "as large as may be": OK + b"Content-Length: 1000\r\n\r\n" + b"x" * 1000,
    "a head as large as may be": (
        OK + b"X: " + b"x" * (2000 - len(OK) - 26) + b"\r\nContent-Length: 1\r\n\r\nx"
    ),
}

# Good or bad, these say more of themselves than their length.
OTHER: dict[str, bytes] = {
    **REFUSED,
    **TOO_LARGE,
    "another status": b"HTTP/1.1 201 OK\r\nContent-Length: 1\r\n\r\nx",
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx",
    "close": OK + b"Content-Length: 1\r\nConnection: close\r\n\r\nx",
    "close among others": OK + b"Content-Length: 1\r\nConnection: keep-alive, close\r\n\r\nx",
    "close in another line": (
        OK + b"Connection: keep-alive\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx"
    ),
    "identity": OK + b"Content-Encoding: identity\r\nContent-Length: 1\r\n\r\nx",
    "no length": OK + b"\r\nx",
    "shorter": OK + b"Content-Length: 2\r\n\r\nx",
    "longer": OK + b"Content-Length: 1\r\n\r\nxy",
    "half a head": OK + b"Content-Length: 1\r\n",
    "interim": b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\nx",
    "a head too large by one": (
        OK + b"X: " + b"x" * (2001 - len(OK) - 26) + b"\r\nContent-Length: 1\r\n\r\nx"
    ),
}


def plain_answer(raw: bytes, bounds: Bounds = BOUNDS) -> Answer | None:
    """What is read of an origin's first answer."""
    return PlainAnswers().read(raw, bounds)


def says_as_the_parser(raw: bytes, origin: PlainAnswers | None = None) -> bool:
    """Checks one against the other; whether it was the quick way's to read."""
    answer = (origin or PlainAnswers()).read(raw, BOUNDS)
    if answer is None:
        return False
    parser = BOUNDS.parser()
    parser.feed(raw)
    assert parser.done
    assert not parser.surplus
    assert parser.head is not None
    assert parser.head.keeps
    assert (answer.status, answer.body) == (parser.head.status, b"".join(parser.pieces))
    assert dict(answer.headers) == dict(parser.head.headers)
    assert (answer.head.length, answer.head.keeps) == (parser.head.length, True)
    return True


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_answer_is_read_at_once(name: str) -> None:
    assert says_as_the_parser(PLAIN[name])
    for place in range(len(PLAIN[name])):
        assert plain_answer(PLAIN[name][:place]) is None


@pytest.mark.parametrize("name", OTHER)
def test_any_other_is_left_to_the_parser(name: str) -> None:
    assert plain_answer(OTHER[name]) is None
    for seen in PLAIN.values():
        origin = PlainAnswers()
        assert origin.read(seen, BOUNDS) is not None
        assert origin.read(OTHER[name], BOUNDS) is None


@pytest.mark.parametrize("name", PLAIN)
def test_what_an_origin_said_last_changes_nothing(name: str) -> None:
    last, _, _ = PLAIN[name].partition(b"\r\n\r\n")
    for raw in (*PLAIN.values(), *OTHER.values()):
        origin = PlainAnswers()
        assert origin.read(PLAIN[name], BOUNDS) is not None
        assert says_as_the_parser(raw, origin) == (plain_answer(raw) is not None)
    for length in (b"3", b"003", b"+3", b"3 ", b" 3", b"-3", b"0x3", b"4", b"2", b"", b"3, 3"):
        head = re.sub(rb"(?i)(\ncontent-length:[ \t]*)\d+", rb"\g<1>%b" % length, last)
        for raw in (head + b"\r\n\r\nabc", head + b"\r\n\r\n", head + b"\r\nabc", head):
            origin = PlainAnswers()
            assert origin.read(PLAIN[name], BOUNDS) is not None
            assert says_as_the_parser(raw, origin) == (plain_answer(raw) is not None)


@pytest.mark.parametrize("name", GOOD)
def test_good_ones_read_the_same(name: str) -> None:
    says_as_the_parser(GOOD[name][0])


def test_the_answer_to_head_is_left_to_the_parser() -> None:
    assert plain_answer(PLAIN["no body"], BOUNDS._replace(bodiless=True)) is None


LINES = st.one_of(
    st.sampled_from(
        [
            b"Content-Length: 3\r\n",
            b"content-length:3\r\n",
            b"Content-Length: 4\r\n",
            b"Content-Length : 3\r\n",
            b"Content-Length: +3\r\n",
            b"Content-Length: 3, 3\r\n",
            b"Content-Type: a/b\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Connection: keep-alive\r\n",
            b"Connection: keep-alive, x\r\n",
            b"Connection: close\r\n",
            b"Content-Encoding: gzip\r\n",
            b" folded\r\n",
            b"\r\n",
        ]
    ),
    st.tuples(
        st.text("cContent-Lghxy _", max_size=15), st.binary(max_size=6), st.sampled_from([b"\r\n"])
    ).map(lambda line: line[0].encode() + b":" + line[1] + line[2]),
)
STATUS = st.sampled_from(
    [
        OK,
        b"HTTP/1.1 200\r\n",
        b"HTTP/1.1 200 \xff\r\n",
        b"HTTP/1.1 200OK\r\n",
        b"HTTP/1.0 200 OK\r\n",
    ]
)


HEADS = st.builds(
    lambda start, lines: b"".join([start, *lines]), STATUS, st.lists(LINES, max_size=5)
)
BODIES = st.binary(min_size=2, max_size=4)


@given(st.lists(HEADS, min_size=1, max_size=3), st.data())
def test_what_came_before_changes_nothing(heads: list[bytes], data: st.DataObject) -> None:
    origin = PlainAnswers()
    for head in data.draw(
        st.lists(st.sampled_from([*heads, OK + b"Content-Length: 3\r\n"]), max_size=6)
    ):
        raw = head + b"\r\n" + data.draw(BODIES)
        assert says_as_the_parser(raw, origin) == (plain_answer(raw) is not None)


@given(STATUS, st.lists(LINES, max_size=5), BODIES)
@example(OK, [b"Content-Length: 3\r\n"], b"xyz")
def test_any_answer_reads_the_same(start: bytes, lines: list[bytes], body: bytes) -> None:
    raw = start + b"".join(lines) + b"\r\n" + body
    if says_as_the_parser(raw):
        return
    # The parser reads it another way, or what it says is more than a length.
    parser = BOUNDS.parser()
    try:
        parser.feed(raw)
    except Http1Error:
        return
    plain = parser.done and not parser.surplus and parser.head is not None and parser.head.keeps
    said = b"".join([start, *lines]).lower()
    assert not plain or b"transfer-encoding:" in said or b"connection:" in said
