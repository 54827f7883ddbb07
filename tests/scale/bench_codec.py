"""Measures the time of the codec, as a ratio to orjson in the same run.

    PYTHONPATH=proto/python python tests/scale/bench_codec.py

The ratios are relative to orjson's loads and dumps of the same document, in the same process.
Exits 1 if a ratio misses its target, or if the codec stores an item of a known type as an
OpaqueItem.
"""

from __future__ import annotations

import hashlib
import sys
import timeit
from collections.abc import Callable

import orjson

from gymmesh_responses import JsonValue, response_from_json, response_to_json

DECODE_TARGET = 8.0
ENCODE_TARGET = 4.0
_CALLS, _ROUNDS = 200, 25


def _tool(name: str) -> JsonValue:
    return {
        "type": "function",
        "name": name,
        "description": "Looks up the opening hours, address and phone number of a place.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "The name of the place"},
                "limit": {"type": "integer", "description": "The most results to return"},
            },
            "required": ["place"],
            "additionalProperties": False,
        },
        "strict": True,
    }


def _id(prefix: str, index: int) -> str:
    return prefix + hashlib.sha256(f"{prefix}{index}".encode()).hexdigest()[:48]


def _turn(index: int) -> list[JsonValue]:
    call_id = _id("call_", index)[:29]
    sentence = f"Step {index}: the café on the corner of the square opens at {index + 7}:30. "
    arguments = orjson.dumps({"place": "café on the square", "limit": index, "day": "monday"})
    part = {"type": "output_text", "text": sentence * 6, "annotations": [], "logprobs": []}
    return [
        {
            "id": _id("rs_", index),
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": sentence * 3}],
            "encrypted_content": None,
        },
        {
            "id": _id("fc_", index),
            "type": "function_call",
            "call_id": call_id,
            "name": "find_place",
            "arguments": arguments.decode(),
            "status": "completed",
        },
        {
            "type": "function_call_output",
            "id": _id("fco_", index),
            "call_id": call_id,
            "output": sentence * 8,
            "status": "completed",
        },
        {
            "id": _id("msg_", index),
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        },
    ]


def document() -> dict[str, JsonValue]:
    """A response of 20 items and about 11 KB, with usage and echoed parameters."""
    return {
        "id": "resp_0123456789abcdef0123456789abcdef",
        "object": "response",
        "created_at": 1760000000.0,
        "status": "completed",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": 4096,
        "max_tool_calls": None,
        "model": "policy",
        "output": [item for index in range(5) for item in _turn(index)],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "service_tier": "default",
        "store": True,
        "temperature": 0.7,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto",
        "tools": [_tool("find_place"), _tool("find_hours")],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": {
            "input_tokens": 2310,
            "input_tokens_details": {"cached_tokens": 1024},
            "output_tokens": 871,
            "output_tokens_details": {"reasoning_tokens": 300},
            "total_tokens": 3181,
        },
        "user": None,
        "metadata": {},
    }


def _best(calls: list[Callable[[], object]]) -> list[float]:
    """The least time of each call in microseconds; rounds alternate between them."""
    best = [float("inf")] * len(calls)
    for _ in range(_ROUNDS):
        for index, call in enumerate(calls):
            seconds = timeit.timeit(call, number=_CALLS)
            best[index] = min(best[index], seconds / _CALLS * 1e6)
    return best


def main() -> int:
    """Measure, print figures and a verdict, and return the exit code."""
    raw = orjson.dumps(document())
    message = response_from_json(raw)
    opaque = sum(item.HasField("opaque") for item in message.output)
    equal = orjson.loads(response_to_json(message)) == orjson.loads(raw)
    plain, decode, encode = _best(
        [
            lambda: orjson.dumps(orjson.loads(raw)),
            lambda: response_from_json(raw),
            lambda: response_to_json(message),
        ]
    )
    print(f"document            {len(raw):8d} bytes, {len(message.output)} items, "
          f"{opaque} items of an unknown type (target: 0)")  # fmt: skip
    print(f"orjson loads+dumps  {plain:8.1f} µs")
    print(f"codec, decode       {decode:8.1f} µs = {decode / plain:4.2f} × orjson "
          f"(target: at most {DECODE_TARGET} ×)")  # fmt: skip
    print(f"codec, encode       {encode:8.1f} µs = {encode / plain:4.2f} × orjson "
          f"(target: at most {ENCODE_TARGET} ×)")  # fmt: skip
    if not equal:
        print("the encoded document differs from the original document")
    met = decode / plain <= DECODE_TARGET and encode / plain <= ENCODE_TARGET
    met = met and equal and opaque == 0
    print("all targets met" if met else "TARGET MISSED")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
