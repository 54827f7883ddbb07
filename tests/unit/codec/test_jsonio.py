"""JSON text: what the fast parser and writer would lose, refuse or invent."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gymmesh_responses as codec
from tests.unit.codec import strategies
from tests.unit.codec.equality import same_json


@pytest.mark.parametrize(
    "text",
    [
        "18446744073709551616",
        "-9223372036854775809",
        "[1,\n123456789012345678901234567890\t]",
        '{"a":1180591620717411303424,"b":[-0.0,1.0,1e22,1]}',
        r'"\ud800"',
        r'{"\udfff":"x\ud83d"}',
        r'"\ud83d\ude00"',
        '{"":{"":null}}',
        '"_00000000000000000000000000000000"',
        '["_00000000000000000000000000000000", 18446744073709551616]',
        "0.00000000000000000000000000000123",
    ],
)
def test_value_is_that_of_the_standard_library(text: str) -> None:
    for source in (text, text.encode(), bytearray(text.encode()), memoryview(text.encode())):
        assert same_json(codec.loads(source), json.loads(text))
    assert same_json(codec.dumps(codec.loads(text)), json.loads(text))


@given(
    st.text("0123456789", min_size=1, max_size=40),
    st.sampled_from(("", "-")),
    st.sampled_from(("", ".0", ".5e3", "e-7", "E+2")),
    st.booleans(),
)
def test_numbers_of_any_length_are_kept(digits: str, sign: str, end: str, in_text: bool) -> None:
    number = f"{sign}{digits.lstrip('0') or '0'}{end}"
    text = f'{{"a": [1, "{number}"]}}' if in_text else f'{{"a": [{number},2]}}'
    assert same_json(codec.loads(text), json.loads(text))


def test_a_mistake_in_a_line_has_one_position() -> None:
    assert codec.loads_line(b' {"a": 1}\r\n') == {"a": 1}
    with pytest.raises(codec.CodecError, match=r"^not valid JSON at column 8: Expecting"):
        codec.loads_line(b'{"a": 1\n')
    with pytest.raises(codec.CodecError, match="compressed with gzip"):
        codec.loads_line(b"\x1f\x8b\x08")


def test_last_of_equal_keys_wins() -> None:
    assert codec.loads('{"a":1,"a":2}') == {"a": 2}
    assert codec.loads('{"a":1,"a":2,"b":18446744073709551616}')["a"] == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "not valid JSON at line 1 column 1"),
        (b'{"a":\n]', "not valid JSON at line 2 column 1"),
        (b"NaN", "NaN is not a JSON number"),
        (b"[-Infinity]", "-Infinity is not a JSON number"),
        (b"1e999", "beyond the range of a double"),
        (b'"\xff"', "not UTF-8 at byte 1"),
        (b"\x1f\x8b\x08", "compressed with gzip; unpack it first"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b"[" * 100_000, "nested deeper than 240 levels"),
        (b"1" * 5000, "more than 4,300 digits"),
    ],
)
def test_text_that_is_refused(text: bytes, problem: str) -> None:
    with pytest.raises(codec.CodecError, match=problem):
        codec.loads(text)
    with pytest.raises(codec.CodecError, match=problem):
        codec.response_from_json(text)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (math.nan, "nan is not a JSON number"),
        ({"a": [1, math.inf]}, r"^a\[1\]: inf is not a JSON number"),
        ({"a": {1: 2}}, "^a: the key 1 is not a string"),
        ({"odd key": [{"b": b"x"}]}, r'^\["odd key"\]\[0\]\.b: bytes is not a JSON type'),
        ([10**5000], "more than 4,300 digits"),
    ],
)
def test_values_that_are_refused(value: Any, problem: str) -> None:
    with pytest.raises(codec.CodecError, match=problem):
        codec.dumps(value)


def test_null_is_still_null_and_a_tuple_an_array() -> None:
    assert codec.dumps({"a": (None, "null")}) == b'{"a":[null,"null"]}'


def nested(levels: int, leaf: Any) -> Any:
    value = leaf
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize("leaf", [1, 2**70, "\ud800"])
def test_depth_is_bounded_by_a_clear_error(leaf: Any) -> None:
    # The item's own object, and the array and object around it, are levels too.
    deep = {"output": [{"type": "message", "x": nested(codec.MAX_DEPTH - 3, leaf)}]}
    for source in (deep, json.dumps(deep)):
        message = codec.response_from_json(source)
        assert same_json(codec.response_to_json(message), deep)
    too_deep = {"output": [{"type": "message", "x": nested(400, leaf)}]}
    for source in (too_deep, json.dumps(too_deep)):
        with pytest.raises(codec.CodecError, match=r"^output\[0\]\.x\.a.*deeper than 240 levels"):
            codec.response_from_json(source)


def test_whatever_depth_is_read_can_be_written() -> None:
    for levels in range(codec.MAX_DEPTH - 10, codec.MAX_DEPTH + 40):
        part = {"type": "refusal", "x": nested(levels, 1)}
        document = {"input": [{"type": "message", "role": "user", "content": [part]}]}
        try:
            message = codec.params_from_json(json.dumps(document))
        except codec.CodecError:
            assert levels + 6 > codec.MAX_DEPTH
            continue
        assert same_json(codec.params_to_json(message), document)


@given(strategies.text)
def test_text_and_bytes(text: str) -> None:
    assert same_json(codec.bytes_to_text(codec.text_to_bytes(text)), text)


def test_a_surrogate_pair_is_one_character() -> None:
    pair, character = "\ud83d\ude00", "\U0001f600"
    assert codec.text_to_bytes(pair) == character.encode()
    assert codec.bytes_to_text(pair.encode("utf-8", "surrogatepass")) == character
    assert codec.item_from_json({"role": "user", "content": pair}).message.text == character


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(codec.CodecError, match="not UTF-8 at byte 1"):
        codec.bytes_to_text(b"a\xff")


def test_overlay_without() -> None:
    assert codec.overlay_without(b"", "a") == b""
    assert codec.overlay_without(b'{"a": 1}', "b") == b'{"a": 1}'
    assert codec.overlay_without(b'{"a":1,"b":null}', "a", "c") == b'{"b":null}'
    assert codec.overlay_without(b'{"a":1}', "a") == b""
    with pytest.raises(codec.CodecError, match=r"^overlay_json: holds an array"):
        codec.overlay_without(b"[1]", "a")


def test_the_order_of_keys_makes_no_other_bytes() -> None:
    one = {"b": [{"y": 1, "x": None}], "a": {"d": 2**70, "c": "\ud800"}}
    other = {"a": {"c": "\ud800", "d": 2**70}, "b": [{"x": None, "y": 1}]}
    assert codec.dumps_sorted(one) == codec.dumps_sorted(other)
    assert codec.loads(codec.dumps_sorted(one)) == one
    assert codec.dumps_sorted([2, 1]) == b"[2,1]"


def test_what_orjson_refuses_changes_no_byte_beside_it() -> None:
    plain = {"é": ["\x00\n\x7f😀", 1e16, 1e-7, -0.0, None, True], "a": {}}
    with_more = {**plain, "n": 2**70, "\ud800": "é\udc00"}
    written = codec.dumps_sorted(with_more)
    more = b'"n":1180591620717411303424,"\xc3\xa9":'
    assert written == codec.dumps_sorted(plain).replace('"é":'.encode(), more)[:-1] + (
        r',"\ud800":"é\udc00"}'.encode()
    )
    with pytest.raises(codec.CodecError, match="4,300 digits"):
        codec.dumps_sorted([10**4300])
    with pytest.raises(codec.CodecError, match="not a JSON number"):
        codec.dumps_sorted([float("nan")])
    with pytest.raises(codec.CodecError, match="not a JSON type"):
        codec.dumps_sorted([2**70, {1}])
