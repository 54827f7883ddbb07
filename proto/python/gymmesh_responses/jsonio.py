"""Converts JSON text to values and back: without loss, and at the fast libraries' speed where
possible.

msgspec reads fast but refuses unpaired surrogates. orjson writes fast but refuses integers beyond
64 bits (which it would read as floats), silently writes NaN as null, and stops at 254 levels. Each
is detected here, and the standard library's slower parser or writer takes over.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeAlias

import msgspec
import orjson

from gymmesh_responses.errors import CodecError

JsonValue: TypeAlias = Any
"""A value as `json.loads` returns it: dict, list, str, int, float, bool or None."""

JsonSource: TypeAlias = "str | bytes | bytearray | memoryview | dict[str, Any] | list[Any]"
"""JSON text, or a parsed document (which is never changed)."""

MAX_DEPTH = 240
"""The most levels of nested objects and arrays. Deeper documents are refused."""

# A document that is read may gain a few levels when its parts are put together again.
_WRITE_DEPTH = MAX_DEPTH + 24
_PLAIN = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
# What it refuses may still be JSON.
_DECODED = msgspec.json.Decoder().decode
_REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ATOMS = frozenset((int, bool, type(None)))
_TEXTS = (bytes, str, bytearray, memoryview)
# How a compressed file begins (RFC 1952, RFC 8878), and no JSON does.
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


class Unpaired(str):
    """Text with an unpaired surrogate.

    This is a separate type, so that a check `type(value) is str` fails: the text does not fit a
    protobuf string.
    """

    __slots__ = ()


def loads(text: str | bytes | bytearray | memoryview) -> JsonValue:
    """Parse JSON text; the last of several equal keys wins.

    It keeps integers of any size (up to Python's limit of 4,300 digits) and unpaired surrogates,
    escaped or in WTF-8 form.

    Raises:
        CodecError: not JSON (NaN and Infinity included), not UTF-8, a number
            beyond the range of a double, or nested too deeply.
    """
    return _parse(text)[0]


def loads_line(line: bytes) -> JsonValue:
    """As `loads`, of a line of a file. Its errors have no line, which would be that of the text.

    Raises:
        CodecError: as `loads`.
    """
    try:
        return loads(line.strip())
    except CodecError as error:
        raise CodecError(error.problem.replace("at line 1 column", "at column")) from None


def dumps(value: JsonValue) -> bytes:
    """Write a value as compact UTF-8 JSON; tuples are written as arrays.

    Raises:
        CodecError: NaN, an infinity, a key that is not a string, a type that
            JSON does not have, or nested too deeply; it names the place.
    """
    try:
        written = orjson.dumps(value, option=_PLAIN)
    except TypeError:
        return _dumps_slowly(value, _WRITE_DEPTH)
    # orjson writes NaN as null: where there is a null, look what it was.
    if written.find(b"null") >= 0:  # `in` would first try to take the bytes for a number
        vet(value, _WRITE_DEPTH, tuples=True)
    return written


def dumps_clean(value: JsonValue) -> bytes:
    """`dumps` for values put together from parsed JSON, so without the search for NaN.

    A NaN would be written as null. Raises the errors of `dumps`.
    """
    try:
        return orjson.dumps(value, option=_PLAIN)
    except TypeError:
        return _dumps_slowly(value, _WRITE_DEPTH)


def dumps_sorted(value: JsonValue) -> bytes:
    """`dumps` with the keys of all objects in the order of their code points, so that equal
    documents give equal bytes. Clients in other languages write the same bytes.
    """
    ordered = _sorted(value)
    try:
        written = orjson.dumps(ordered, option=_PLAIN)
    except TypeError:
        vet(ordered, _WRITE_DEPTH)
        return _written_alike(ordered)
    if written.find(b"null") >= 0:
        vet(ordered, _WRITE_DEPTH)
    return written


def _written_alike(value: JsonValue) -> bytes:
    """As orjson would write it if it could write integers and texts of all kinds."""
    if isinstance(value, Mapping):
        members = (_written_alike(key) + b":" + _written_alike(value[key]) for key in value)
        return b"{%b}" % b",".join(members)
    if isinstance(value, list):
        return b"[%b]" % b",".join([_written_alike(element) for element in value])
    try:
        return orjson.dumps(value)
    except TypeError:
        if isinstance(value, str):
            text = json.dumps(_join_pairs(value), ensure_ascii=False)
            return _SURROGATE.sub(lambda one: f"\\u{ord(one[0]):04x}", text).encode()
    try:
        return b"%d" % value
    except ValueError:
        raise CodecError("not writable: an integer has more than 4,300 digits") from None


def _sorted(value: JsonValue) -> JsonValue:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(element) for element in value] if isinstance(value, list) else value


def read(source: JsonSource) -> JsonValue:
    """The document in `source`, its unpaired surrogates marked as `Unpaired`.

    Raises:
        CodecError: as `loads`; for parsed JSON, a value that JSON does not have.
    """
    if isinstance(source, _TEXTS):
        document, clean = _parse(source)
        if clean:
            return document
    else:
        document = source
    return _mark_unpaired(document) if vet(document, MAX_DEPTH) else document


write = dumps_clean
"""Writes a value that came from JSON, like `dumps_clean`."""


def store(value: JsonValue) -> bytes:
    """`write` for a message's `*_json` field: leaves room for the levels around it."""
    try:
        return orjson.dumps(value, option=_PLAIN)
    except TypeError:
        return _dumps_slowly(value, MAX_DEPTH)


def read_object(raw: bytes, field: str) -> dict[str, JsonValue]:
    """Parse a message's `*_json` field that must hold a JSON object.

    Raises:
        CodecError: at `field`, when it holds anything else.
    """
    value = read_field(raw, field)
    if type(value) is not dict:
        raise CodecError(f"holds {name_of(value)} where a JSON object is required", (field,))
    return value


def read_field(raw: bytes, field: str) -> JsonValue:
    """Parse a message's `*_json` field, naming it in the error."""
    try:
        return loads(raw)
    except CodecError as error:
        raise error.within(field) from None


def overlay_without(overlay_json: bytes, *keys: str) -> bytes:
    """An overlay without some keys, for a caller that sets the typed fields of those names.

    Raises:
        CodecError: the overlay is not a JSON object.
    """
    if not overlay_json:
        return overlay_json
    overlay = read_object(overlay_json, "overlay_json")
    kept = {key: value for key, value in overlay.items() if key not in keys}
    if len(kept) == len(overlay):
        return overlay_json
    return store(kept) if kept else b""


def text_to_bytes(text: str) -> bytes:
    """UTF-8, in which an unpaired surrogate takes its three-byte (WTF-8) form."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _join_pairs(text).encode("utf-8", "surrogatepass")


def bytes_to_text(raw: bytes) -> str:
    """The inverse of `text_to_bytes`.

    Raises:
        CodecError: the bytes are neither UTF-8 nor WTF-8.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return _join_pairs(_decode_wtf8(raw))


def name_of(value: object) -> str:
    """The name of a JSON value's type in an error."""
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
    if value is None:
        return "null"
    return names.get(type(value), "a number")


def vet(root: JsonValue, limit: int, *, tuples: bool = False) -> bool:
    """Check that `root` is a JSON value; say whether a text in it has a surrogate.

    Goes through the value level by level, which bounds the depth without recursion.

    Raises:
        CodecError: at the first value or key that JSON does not have.
    """
    surrogates = False
    level: list[tuple[Any, Any]] = [(None, [root])]
    # The root stands in an array of its own, hence one level more.
    for _ in range(limit + 1):
        deeper: list[tuple[Any, Any]] = []
        for place, container in level:
            if type(container) is dict:
                for key in container:
                    if type(key) is not str and type(key) is not Unpaired:
                        raise CodecError(f"the key {key!r} is not a string", _path(place))
                    if not key.isascii() and _SURROGATE.search(key):
                        surrogates = True
            for key, value in _members(container):
                kind = type(value)
                if kind is str or kind is Unpaired:
                    if not value.isascii() and _SURROGATE.search(value):
                        surrogates = True
                elif kind in _ATOMS:
                    pass
                elif kind is dict or kind is list or (tuples and kind is tuple):
                    deeper.append(((place, key), value))
                elif kind is not float:
                    raise CodecError(f"{kind.__name__} is not a JSON type", _path((place, key)))
                elif not math.isfinite(value):
                    raise CodecError(f"{value} is not a JSON number", _path((place, key)))
        if not deeper:
            return surrogates
        level = deeper
    raise CodecError(f"nested deeper than {MAX_DEPTH} levels", _path(level[0][0])[:8])


def _members(container: Any) -> Iterable[tuple[str | int, Any]]:
    return container.items() if type(container) is dict else enumerate(container)


def _path(place: Any) -> tuple[str | int, ...]:
    steps: list[str | int] = []
    while place is not None:
        place, step = place
        steps.append(step)
    # The last is the index of the root in its array.
    return tuple(reversed(steps[:-1]))


def _parse(text: str | bytes | bytearray | memoryview) -> tuple[JsonValue, bool]:
    """The document, and whether it is known to be free of unpaired surrogates."""
    if isinstance(text, str):
        raw = text_to_bytes(text)
    else:
        raw = text if type(text) is bytes else bytes(text)
    try:
        return _DECODED(raw), True
    except _REFUSED:
        return _parse_slowly(raw), False


def _parse_slowly(raw: bytes) -> JsonValue:
    text = _decode_wtf8(raw)
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise CodecError(f"not valid JSON at {place}: {error.msg}") from None
    except RecursionError:
        raise CodecError(f"nested deeper than {MAX_DEPTH} levels") from None
    except CodecError:
        raise
    except ValueError:
        raise CodecError("not readable: an integer has more than 4,300 digits") from None


def _dumps_slowly(value: JsonValue, limit: int) -> bytes:
    vet(value, limit, tuples=True)
    try:
        # Escapes keep an unpaired surrogate readable for every JSON parser.
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except RecursionError:
        raise CodecError(f"nested deeper than {MAX_DEPTH} levels") from None
    except ValueError:
        raise CodecError("not writable: an integer has more than 4,300 digits") from None


def _decode_wtf8(raw: bytes) -> str:
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        for magic, name in _COMPRESSED.items():
            if raw.startswith(magic):
                raise CodecError(f"compressed with {name}; unpack it first") from None
        raise CodecError(f"not UTF-8 at byte {error.start}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise CodecError(f"not valid JSON: {name} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise CodecError(f"the number {digits[:40]} is beyond the range of a double")
    return number


def _join_pairs(text: str) -> str:
    # A high surrogate before a low one is one character in every JSON text.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _mark_unpaired(value: JsonValue) -> JsonValue:
    """A copy in which texts with an unpaired surrogate are `Unpaired`."""
    kind = type(value)
    if kind is str:
        if value.isascii() or not _SURROGATE.search(value):
            return value
        joined = _join_pairs(value)
        return Unpaired(joined) if _SURROGATE.search(joined) else joined
    # Plain loops: a comprehension would take a second frame for each level.
    if kind is dict:
        marked = {}
        for key, member in value.items():
            marked[_mark_unpaired(key)] = _mark_unpaired(member)
        return marked
    if kind is list:
        elements = []
        for element in value:
            elements.append(_mark_unpaired(element))
        return elements
    return value
