"""Random values of all kinds, the same for the same seed, for fields, rows and headers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final, TypeVar

T = TypeVar("T")
#: What callers know, by the name of the field that takes it: ids that exist, names that are served.
Words = Mapping[str, Sequence[str]]

_TEXTS: Final = (
    "", " ", "0", "-1", "null", "*", "a", "..", "../../etc/passwd", "%s%n%x", "{0}", "${HOME}",
    "\x00", "\r\n", "\n\nX: y", "\u2028", "\ufeff", "\u202eabc", "é", "e\u0301", "𝒳", "\U0010ffff",
    "<script>", "' OR 1=1 --", "\\", '"', "1e999", "NaN", "True", "policy", "math", "127.0.0.1:1",
    "direct:x", "unix:/x", "ipv4:127.0.0.1:1", "dns:///x", "xds:///x", "http://127.0.0.1:1/v1",
)  # fmt: skip
_INTEGERS: Final = (
    0, 1, 2, 3, 7, 10, 100, 127, 128, 255, 256, 1000, 1001, 2**15, 2**16, 2**31 - 1, 2**31, 2**32,
    2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1,
)  # fmt: skip
_NUMBERS: Final = (
    0.0, -0.0, 1.0, -1.0, 0.5, 1e-9, 1e308, -1e308, 5e-324, math.inf, -math.inf, math.nan, 3600.0,
)  # fmt: skip
_KEYS: Final = (
    "type", "role", "content", "name", "arguments", "input", "tools", "temperature", "call_id",
    "expected_answer", "id", "output", "text", "seed", "parameters", "properties", "", "a",
)  # fmt: skip
#: What JSON parsers have stumbled over.
_JSON_TEXTS: Final = (
    b"", b"{", b"[", b"nul", b"{}", b"[]", b"0", b"-", b"1e999", b"-0", b'"', b'"\\ud800"', b"NaN",
    b"Infinity", b'{"a":1,"a":2}', b"\xff\xfe{}", b"\xef\xbb\xbf{}", b"{}{}", b'{"a":}',
    b"1" * 5000, b"[" * 5000,
    b'{"a":' * 2000 + b"1" + b"}" * 2000, b"[" * 900 + b"]" * 900, b'"\xff"',
    b'{"__proto__":{}}', b"18446744073709551616", b'"' + b"a" * 70_000 + b'"',
)  # fmt: skip


class Values:
    """Draws values. `words` are what the caller knows, and does not change which values are drawn
    otherwise, as long as each list keeps its length.
    """

    def __init__(self, random: Random, words: Words | None = None) -> None:
        self.random = random
        self._words = words or {}

    def chance(self, share: float) -> bool:
        """True so often."""
        return self.random.random() < share

    def one(self, of: Sequence[T]) -> T:
        """One of several."""
        return of[self.random.randrange(len(of))]

    def few(self, most: int = 4) -> int:
        """A small number, rarely a larger one."""
        return self.random.randrange(300) if self.chance(0.01) else self.random.randrange(most + 1)

    def text(self, name: str = "") -> str:
        """A text, often one that a field of this name knows."""
        known = self._words.get(name, ())
        if known and self.chance(0.7):
            return self.one(known)
        kind = self.random.randrange(10)
        if kind < 6:
            return self.one(_TEXTS)
        if kind < 9:
            size = self.random.randrange(40)
            return "".join(chr(self._code_point()) for _ in range(size))
        return self.one(_TEXTS[5:]) * self.one((10, 513, 5000, 70_000))

    def blob(self, name: str = "") -> bytes:
        """Bytes; those of a field that holds JSON are often JSON."""
        if name.endswith("json") or name == "arguments" or self.chance(0.2):
            return self.json_text()
        if self.chance(0.1):
            return self.random.randbytes(self.one((1000, 70_000)))
        return self.random.randbytes(self.random.randrange(64))

    def integer(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, often near a bound of some kind."""
        if self.chance(0.3):
            return self.random.randint(low, high)
        number = self.one(_INTEGERS) * (-1 if low < 0 and self.chance(0.3) else 1)
        return max(low, min(high, number))

    def number(self) -> float:
        """A floating-point number."""
        return self.one(_NUMBERS) if self.chance(0.7) else self.random.uniform(-10, 10)

    def json_text(self) -> bytes:
        """A document, or what looks like one."""
        if self.chance(0.3):
            return self.one(_JSON_TEXTS)
        return json.dumps(self.json_value()).encode()

    def json_value(self, depth: int = 0) -> Any:
        """What a document may hold."""
        kind = self.random.randrange(10 if depth < 4 else 7)
        if kind < 2:
            return self.text()
        if kind == 2:
            return self.integer(-(2**64), 2**65)
        if kind == 3:
            return self.number()
        if kind == 4:
            return self.one((True, False, None))
        if kind < 7:
            return self.one(("", 0, -1, 1.5, [], {}, None, "a", [[]], {"": None}))
        if kind == 7:
            return [self.json_value(depth + 1) for _ in range(self.few())]
        return {self.json_key(): self.json_value(depth + 1) for _ in range(self.few())}

    def json_key(self) -> str:
        """A key of an object."""
        return self.one(_KEYS) if self.chance(0.8) else self.text()

    def changed_json(self, document: Any) -> Any:
        """A document with one value of it changed, taken out, or put elsewhere."""
        sites = list(_sites(document))
        if not sites:
            return self.json_value()
        holder, key = self.one(sites)
        kind = self.random.randrange(5)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[self.json_key()] = holder.pop(key)
        elif kind == 2:
            other, place = self.one(sites)
            if place in other if isinstance(other, dict) else place < len(other):
                holder[key] = json.loads(json.dumps(other[place]))
        else:
            holder[key] = self.json_value(2)
        return document

    def _code_point(self) -> int:
        point = self.random.randrange(self.one((0x80, 0x800, 0xD800, 0x110000)))
        return 0x20 if 0xD800 <= point < 0xE000 else point


def _sites(document: Any) -> Any:
    """Every place of a value: what holds it, and under which key or index."""
    if isinstance(document, dict | list):
        keys = list(document) if isinstance(document, dict) else range(len(document))
        for key in keys:
            yield document, key
            yield from _sites(document[key])
