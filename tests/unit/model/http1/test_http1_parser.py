"""Answers as bytes: any split reads the same, and what could be taken two ways is refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_model.http1 import ConnectionLost, Http1Error, ProtocolViolated, TooLarge
from gymmesh_model.http1.parser import Parser

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
MAX_BODY, MAX_HEAD = 1_000, 2_000

# What is sent, and what it says: status, body, whether the connection is kept.
GOOD: dict[str, tuple[bytes, tuple[int, bytes, bool]]] = {
    "length": (OK + b"Content-Length: 5\r\n\r\nhello", (200, b"hello", True)),
    "no body": (OK + b"Content-Length: 0\r\n\r\n", (200, b"", True)),
    "blanks around a value": (OK + b"CONTENT-length:\t 5 \r\n\r\nhello", (200, b"hello", True)),
    "no reason": (b"HTTP/1.1 500\r\nContent-Length: 1\r\n\r\nx", (500, b"x", True)),
    "empty reason": (b"HTTP/1.1 404 \r\nContent-Length: 1\r\n\r\nx", (404, b"x", True)),
    "other bytes in values": (
        OK + b"X: \xff\xc3\xa4:;\r\nContent-Length: 1\r\n\r\nx",
        (200, b"x", True),
    ),
    "close": (OK + b"Content-Length: 1\r\nConnection: x, Close\r\n\r\nx", (200, b"x", False)),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", (200, b"x", False)),
    "HTTP/1.0, kept": (
        b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: Keep-Alive\r\n\r\nx",
        (200, b"x", True),
    ),
    "close, then keep-alive": (
        OK + b"Content-Length: 1\r\nConnection: close\r\nConnection: keep-alive\r\n\r\nx",
        (200, b"x", False),
    ),
    "no content": (b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n", (204, b"", True)),
    "not modified": (b"HTTP/1.1 304 X\r\nContent-Length: 10\r\n\r\n", (304, b"", True)),
    "interim": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n"
        + OK
        + b"Content-Length: 1\r\n\r\nx",
        (200, b"x", True),
    ),
    "chunks": (CHUNKED + b"5\r\nhello\r\n3\r\n, x\r\n0\r\n\r\n", (200, b"hello, x", True)),
    "sizes in hex": (CHUNKED + b"00A\r\n0123456789\r\n0\r\n\r\n", (200, b"0123456789", True)),
    "chunk extensions": (
        CHUNKED + b'1 ;a=b;c="d"\r\nx\r\n1\t;\r\ny\r\n0;e\r\n\r\n',
        (200, b"xy", True),
    ),
    "trailers": (CHUNKED + b"1\r\nx\r\n0\r\nA: b\r\nContent-Length: 9\r\n\r\n", (200, b"x", True)),
    "line ends inside chunks": (CHUNKED + b"4\r\n\r\n\r\n\r\n0\r\n\r\n", (200, b"\r\n\r\n", True)),
    "identity": (
        OK + b"Content-Encoding: identity\r\nContent-Length: 1\r\n\r\nx",
        (200, b"x", True),
    ),
}

REFUSED: dict[str, bytes] = {
    "another protocol": b"SSH-2.0-x\r\n\r\n",
    "another protocol, no line": b"\x15\x03\x01\x00\x02\x02",
    "HTTP/2": b"HTTP/2 200 OK\r\n\r\n",
    "HTTP/1.2": b"HTTP/1.2 200 OK\r\n\r\n",
    "lower case": b"http/1.1 200 OK\r\n\r\n",
    "blank line first": b"\r\n" + OK + b"\r\n",
    "status of two digits": b"HTTP/1.1 20 OK\r\n\r\n",
    "status of four digits": b"HTTP/1.1 2000 OK\r\n\r\n",
    "status 0xx": b"HTTP/1.1 099 OK\r\n\r\n",
    "two blanks": b"HTTP/1.1  200 OK\r\n\r\n",
    "switching protocols": b"HTTP/1.1 101 X\r\nUpgrade: x\r\n\r\n",
    "blank before the colon": OK + b"Content-Length : 5\r\n\r\nhello",
    "folded line": OK + b"X: a\r\n Content-Length: 5\r\n\r\nhello",
    "no colon": OK + b"Content-Length\r\n\r\n",
    "no name": OK + b": x\r\n\r\n",
    "bare line feed": OK + b"X: a\nContent-Length: 5\r\n\r\nhello",
    "bare carriage return": OK + b"X: a\rY: b\r\n\r\n",
    "zero byte": OK + b"X: a\0\r\n\r\n",
    "delete": OK + b"X: \x7f\r\n\r\n",
    "length and chunks": OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    "two lengths": OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
    "the same length twice": OK + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n",
    "list of lengths": OK + b"Content-Length: 5, 5\r\n\r\n",
    "length with a sign": OK + b"Content-Length: +5\r\n\r\n",
    "negative length": OK + b"Content-Length: -5\r\n\r\n",
    "length in hex": OK + b"Content-Length: 0x5\r\n\r\n",
    "length with underscore": OK + b"Content-Length: 1_0\r\n\r\n",
    "empty length": OK + b"Content-Length:\r\n\r\n",
    "length of other digits": OK + "Content-Length: ٥\r\n\r\n".encode(),
    "endless length": OK + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n",
    "compressed twice": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    "chunked twice": OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
    "unknown coding": OK + b"Transfer-Encoding: xchunked\r\n\r\n",
    "chunks in HTTP/1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    "compressed": OK + b"Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx",
    "size is no number": CHUNKED + b"x\r\n",
    "size with 0x": CHUNKED + b"0x5\r\nhello\r\n",
    "negative size": CHUNKED + b"-1\r\n",
    "no size": CHUNKED + b"\r\n",
    "bare line feed after a size": CHUNKED + b"5\nhello\r\n",
    "carriage return in an extension": CHUNKED + b"5;a\rb\r\nhello\r\n",
    "longer chunk than said": CHUNKED + b"3\r\nhello\r\n",
    "trailer without a colon": CHUNKED + b"0\r\nhello\r\n\r\n",
    "bare line feed in trailers": CHUNKED + b"0\r\nA: b\n\r\n",
}

TOO_LARGE: dict[str, bytes] = {
    "length": OK + b"Content-Length: 1001\r\n\r\n",
    "huge length": OK + b"Content-Length: 999999999999999999\r\n\r\n",
    "chunk": CHUNKED + b"3E9\r\n",
    "huge chunk": CHUNKED + b"fffffffffffffff\r\n",
    "chunks together": CHUNKED + b"3e8\r\n" + b"x" * 1000 + b"\r\n1\r\n",
    "to the end": OK + b"\r\n" + b"x" * 1001,
    "head": OK + b"X: " + b"x" * 2000 + b"\r\n\r\n",
    "endless head": OK + b"X: " + b"x" * 2000,
    "many headers": OK + b"A: b\r\n" * 400,
    "interim answers without end": b"HTTP/1.1 100 Continue\r\n\r\n" * 100,
    "chunk extension": CHUNKED + b"1;" + b"x" * 5000,
    "finished chunk extension": CHUNKED + b"1;" + b"x" * 5000 + b"\r\n",
    "trailers": CHUNKED + b"0\r\n" + b"A: b\r\n" * 400,
}


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
