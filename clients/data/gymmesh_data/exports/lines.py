"""Records as lines of JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import orjson

from gymmesh_responses import JsonValue, dumps, loads

# Only a line that orjson refused has escapes of this kind: all other text stands as it is.
_ESCAPED: Final = b"\\ud"
SURROGATES: Final = "records with unpaired surrogates (replaced by replacement characters)"


def line_of(record: JsonValue) -> bytes:
    """A record as one line, with its newline.

    What was read from JSON has no NaN, which orjson would write as null; what orjson refuses (large
    integers, unpaired surrogates) the codec writes, at a fraction of the speed.

    Raises CodecError if the record can't be written as JSON.
    """
    try:
        return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        return dumps(record) + b"\n"


def read_line(line: bytes) -> dict[str, Any]:
    """The record that `line_of` made a line of."""
    record = loads(line)
    assert isinstance(record, dict)  # written by us a moment ago
    return record


def without_surrogates(line: bytes, losses: Counter[str]) -> bytes:
    """A line of `line_of`, for readers that accept only well-formed text."""
    if _ESCAPED not in line:
        return line
    found = loads(line)
    plain = _replaced(found)
    if plain == found:
        return line
    losses[SURROGATES] += 1
    return line_of(plain)


def _replaced(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_replaced(one) for one in value]
    if isinstance(value, dict):
        return {str(_replaced(key)): _replaced(one) for key, one in value.items()}
    return value
