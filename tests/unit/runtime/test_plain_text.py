"""Text of others never acts upon a terminal, and never looks like a line of ours."""

from __future__ import annotations

import io
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_runtime.text.plain_text import (
    IN_LINES,
    PlainFormatter,
    laid_out,
    one_line,
    plain_json,
)

ACTS = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), *"\u202a\u202e\u2066\u2069\u061c"]
ACTS += ["\u2028", "\u2029", "\u200b", "\u200e", "\ufeff", "\U000e0041", "\ud800"]


@pytest.mark.parametrize("char", ACTS)
def test_what_acts_is_written_out(char: str) -> None:
    assert one_line(f"a{char}b").isascii()
    assert len(one_line(char)) > 1
    assert laid_out(char) == (char if char in "\n\t" else one_line(char))
    assert json.loads(plain_json(f'"a{char}b"'), strict=False) == f"a{char}b"
    assert plain_json(f'"{char}"').isascii()


@pytest.mark.parametrize("text", ["", "plain", "größer → 東京 😀", "ن‌ی", "a\\nb", "№ 5 – „x“"])
def test_words_stay(text: str) -> None:
    assert one_line(text) == laid_out(text) == plain_json(text) == text


@given(st.text())
def test_one_line_is_one(text: str) -> None:
    assert len(one_line(text).splitlines()) <= 1
    one_line(text).encode()  # it can be written
    assert one_line(one_line(text)) == one_line(text)


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_means_the_same(value: object) -> None:
    assert json.loads(plain_json(json.dumps(value, ensure_ascii=False))) == value


def test_a_log_record_is_one_line_and_what_follows_is_indented() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(PlainFormatter("%(levelname)s %(name)s: %(message)s"))
    log = logging.Logger("gymmesh.test")
    log.addHandler(handler)
    try:
        raise ValueError("worse\nERROR gymmesh: forged\x1b[2J")
    except ValueError:
        log.exception("it said %s", "bad\nERROR gymmesh: forged\x1b]52;c;aGk=\x07")
    first, *rest = stream.getvalue().splitlines()
    assert first == r"ERROR gymmesh.test: it said bad\nERROR gymmesh: forged\x1b]52;c;aGk=\x07"
    assert rest[0] == "    Traceback (most recent call last):"
    assert rest[-1] == r"    ERROR gymmesh: forged\x1b[2J"
    assert all(line.startswith("    ") for line in rest)
    stream.truncate(stream.seek(0))
    log.error("%s", "it ended; its log:\nERROR gymmesh: forged\x1b[2J\nlast", extra=IN_LINES)
    assert stream.getvalue().splitlines() == [
        "ERROR gymmesh.test: it ended; its log:",
        r"    ERROR gymmesh: forged\x1b[2J",
        "    last",
    ]
