"""Answers as bytes: any split reads the same, and what could be taken two ways is refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_model.http1 import ConnectionLost, Http1Error, ProtocolViolated, TooLarge
from gymmesh_model.http1.parser import Parser
from tests.unit.model.http1.answers import answers

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
# Where the answers of the data file change from small enough to too large.
MAX_BODY, MAX_HEAD = 1_000, 2_000

ROWS = answers()
GOOD = {
    row.name: (row.sent, (row.status, row.body.encode("latin-1"), row.keeps))
    for row in ROWS
    if row.outcome == "answer"
}
REFUSED = {row.name: row.sent for row in ROWS if row.outcome == "refused"}
TOO_LARGE = {row.name: row.sent for row in ROWS if row.outcome == "too large"}


def fed(pieces: list[bytes]) -> Parser:
    parser = Parser(MAX_BODY, MAX_HEAD)
    for piece in pieces:
        parser.feed(piece)
    return parser


def said(parser: Parser) -> tuple[int, bytes, bool]:
    assert parser.head is not None
    assert parser.done
    assert not parser.surplus
    assert parser.size == len(b"".join(parser.pieces))
    return parser.head.status, b"".join(parser.pieces), parser.head.keeps


def split(raw: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(places), len(raw)]
    return [raw[start:end] for start, end in itertools.pairwise(edges)]


def bytewise(raw: bytes) -> list[bytes]:
    return [raw[place : place + 1] for place in range(len(raw))]


@pytest.mark.parametrize("name", GOOD)
def test_an_answer_reads_the_same_however_it_is_cut(name: str) -> None:
    raw, wanted = GOOD[name]
    assert said(fed([raw])) == wanted
    assert said(fed(bytewise(raw))) == wanted
    for place in range(1, len(raw)):
        assert said(fed([raw[:place], raw[place:]])) == wanted


@given(st.sampled_from(sorted(GOOD)), st.data())
def test_any_split_reads_the_same(name: str, data: st.DataObject) -> None:
    raw, wanted = GOOD[name]
    assert said(fed(split(raw, data.draw(st.lists(st.integers(0, len(raw))))))) == wanted


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.data())
def test_chunks_of_anything(bodies: list[bytes], data: st.DataObject) -> None:
    raw = CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in bodies) + b"0\r\n\r\n"
    pieces = split(raw, data.draw(st.lists(st.integers(0, len(raw)), max_size=12)))
    assert said(fed(pieces)) == (200, b"".join(bodies), True)


@pytest.mark.parametrize("name", GOOD)
def test_what_follows_an_answer_is_noticed_and_not_read(name: str) -> None:
    raw, wanted = GOOD[name]
    parser = fed([raw + OK])
    assert parser.surplus
    assert b"".join(parser.pieces) == wanted[1]
    later = fed([raw, b"x"])
    assert later.surplus


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_an_answer_is_refused(name: str) -> None:
    with pytest.raises(ProtocolViolated):
        fed([REFUSED[name]])
    with pytest.raises(ProtocolViolated):
        fed(bytewise(REFUSED[name]))


@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_is_too_large_is_refused(name: str) -> None:
    with pytest.raises(TooLarge):
        fed([TOO_LARGE[name]])
    with pytest.raises(TooLarge):
        fed(bytewise(TOO_LARGE[name]))


@pytest.mark.parametrize("name", GOOD)
def test_an_answer_that_ends_early_is_lost(name: str) -> None:
    raw, _ = GOOD[name]
    for place in range(len(raw)):
        parser = fed([raw[:place]])
        assert not parser.done
        with pytest.raises(ConnectionLost) as caught:
            parser.end()
        assert caught.value.untouched == (place == 0)
        assert caught.value.head == (parser.head is not None)


def test_without_a_length_the_connection_ends_the_answer() -> None:
    parser = fed([OK + b"\r\nhel", b"lo"])
    assert not parser.done
    parser.end()
    assert said(parser) == (200, b"hello", False)


def test_the_answer_to_head_has_no_body() -> None:
    parser = Parser(MAX_BODY, bodiless=True)
    parser.feed(OK + b"Content-Length: 5\r\n\r\n")
    assert said(parser) == (200, b"", True)


def test_headers_are_found_whatever_their_case() -> None:
    raw = OK + b"retry-After:  3 \r\nX-A: b\r\nx-a: c\r\nContent-Type: Text/HTML ; q=1\r\n\r\n"
    head = fed([raw]).head
    assert head is not None
    headers = head.headers
    assert headers["RETRY-AFTER"] == "3"
    assert headers.get("x-a") == "b, c"
    assert headers.get("none") is None
    assert sorted(headers) == ["content-type", "retry-after", "x-a"]
    assert len(headers) == 3
    assert head.content_type == "text/html"


@given(st.binary(max_size=200), st.data())
def test_noise_is_read_or_refused_and_nothing_else(noise: bytes, data: st.DataObject) -> None:
    start = data.draw(st.sampled_from([b"", OK, CHUNKED, OK + b"Content-Length: 5\r\n\r\n"]))
    raw = start + noise
    outcomes: set[tuple[type, str]] = set()
    for pieces in ([raw], bytewise(raw)):
        try:
            parser = fed(pieces)
        except Http1Error as error:
            outcomes.add((type(error), str(error)))
        else:
            outcomes.add((bytes, b"".join(parser.pieces).decode("latin-1")))
    assert len(outcomes) == 1
