"""Answers made to break a verifier, as messages and as calls: data for the tests of verdicts."""

from __future__ import annotations

import json
from collections.abc import Sequence

from gymmesh.responses.v1 import responses_pb2
from gymmesh_responses import item_from_json

__all__ = ["FRAMES", "TEXTS", "call", "said", "transcripts"]

_HUGE = "1" + "0" * 400
_DEEP = 980  # levels: as deep as Python's parsers just about follow
_EVENT = '{"event_id": 0, "event_name": "x", "start_time": "12:00", "duration": %s}'
_TWICE = f'{{"event_id": 0, "start_time": "12:00", "duration": 60, "x": {"[" * 900}{"]" * 900}}}'
_ALIASES = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
_ENTITIES = (
    '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">'
    + "".join(
        f'<!ENTITY {name} "{f"&{before};" * 10}">'
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    + "]><x>&i;</x>"
)

TEXTS: dict[str, str] = {
    "huge number": _HUGE,
    "number with more digits than Python reads": "9" * 5_000,
    "a property that is huge": f'{{"n": {_HUGE}}}',
    "a property of 4,000 digits": f'{{"n": {"9" * 4_000}}}',
    "a hexadecimal property": "n: 0x" + "f" * 5_000,
    "beyond all floats": '{"n": 1e400}',
    "no number": '{"n": NaN}',
    "infinite": '{"n": -Infinity}',
    "deep lists": "[" * _DEEP + "]" * _DEEP,
    "deeper lists": "[" * 100_000 + "]" * 100_000,
    "deep objects": '{"n":' * _DEEP + "1" + "}" * _DEEP,
    "unclosed objects": '{"n":' * 100_000,
    "deep property": '{"n": ' + "[" * 900 + "]" * 900 + "}",
    "deep YAML": "- " * 2_000 + "x",
    "aliases": _ALIASES,
    "an alias of itself": "&a [*a]",
    "entities": _ENTITIES,
    "a lone surrogate": "\ud800",
    "a property with a lone surrogate": '{"n": "\ud800", "\udfff": 1}',
    "an escaped lone surrogate": '{"n": "\\ud800"}',
    "null characters": "\x00" * 1_000,
    "an event of huge duration": f"[{_EVENT % _HUGE}]",
    "an event of infinite duration": f"[{_EVENT % '1e999'}]",
    "an event of no duration": f"[{_EVENT % 'NaN'}]",
    "two deep events": f"[{_TWICE}, {_TWICE}]",
    "an event of deep id": f'[{{"event_id": {"[" * 900}{"]" * 900}}}]'.replace("[[", "[ ["),
    "many events": "[" + ", ".join(_EVENT % n for n in range(1_200)) + "]",
    "a pattern runs away": "a" * 60 + "b",
    "JSON on which a pattern runs away": json.dumps({"n": 1, "s": "a" * 60 + "b"}),
    "boxes": "\\boxed{" * 20_000,
    "closed boxes": "\\boxed{" * 5_000 + "}" * 5_000,
    "answers": "Answer: " * 20_000,
    "spaces": "Answer:" + " " * 100_000,
    "quotes": "'\"" * 20_000,
    "dots": "." * 100_000,
    "abbreviations": "a.b.c. " * 10_000,
    "one word": "x" * 100_000,
    "fences": "```sql\n" * 10_000,
    "stars": "* " * 20_000,
    "an endless query": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) "
    "SELECT count(*) FROM r",
    "a large query": "SELECT hex(zeroblob(1000000000))",
    "a query that is deep": "SELECT " + "(" * 5_000 + "1" + ")" * 5_000,
}

# How a text is written down, so that each environment comes to read it.
FRAMES = ("{}", "\\boxed{{{}}}", "Answer: {}", "```sql\nSELECT {}\n```")


def said(text: str) -> responses_pb2.Item:
    """The model's message."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return item_from_json({"type": "message", "role": "assistant", "content": content})


def call(name: str, arguments: str, call_id: str = "c") -> responses_pb2.Item:
    """The model's call of a tool, with its arguments as they are."""
    return item_from_json(
        {"type": "function_call", "name": name, "arguments": arguments, "call_id": call_id}
    )


def transcripts(
    tool: str, argument: str, frames: Sequence[str] = FRAMES, longest: int | None = None
) -> dict[str, list[responses_pb2.Item]]:
    """Transcripts by what they are: each text as a message, and as a call of the tool, both as
    all of its arguments and as the value of one. `longest`: characters of a message.
    """
    found: dict[str, list[responses_pb2.Item]] = {}
    for why, text in TEXTS.items():
        for frame in frames:
            found[f"{why}, as {frame}"] = [said(frame.format(text)[:longest])]
        as_text = json.dumps({argument: text})
        for kind, written in (
            ("all arguments", text),
            ("an argument", f'{{"{argument}": {text}}}'),
            ("a text argument", as_text),
        ):
            found[f"{why}, as {kind}"] = [call(tool, written)]
    found["many calls"] = [call(tool, "{}", str(n)) for n in range(2_000)]
    found["a tool of an odd name"] = [call("\ud800" * 100, "{}")]
    return found
