"""Records as lines of JSON."""

from __future__ import annotations

import orjson

from gymmesh_responses import JsonValue, dumps


def line_of(record: JsonValue) -> bytes:
    """A record as one line, with its newline.

    What was read from JSON has no NaN, which orjson would write as null; what orjson refuses (large
    integers, unpaired surrogates) the codec writes, at a fraction of the speed.

    Raises:
        CodecError: it is no JSON.
    """
    try:
        return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        return dumps(record) + b"\n"
