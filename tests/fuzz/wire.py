"""Bytes that were a protobuf message, hurt: https://protobuf.dev/programming-guides/encoding/.

`hurt` cuts a message into its fields, at any depth, and spoils one of them, or spoils the bytes
wherever they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.fuzz.values import Values

VARINT, FIXED64, BYTES, GROUP, END_GROUP, FIXED32 = range(6)
_WIDTHS: Final = {FIXED64: 8, FIXED32: 4}
_DEEPEST: Final = 8
_SIZES: Final = (2**7, 2**14, 2**28, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1)


@dataclass(frozen=True, slots=True)
class Field:
    """One field as it is encoded: its number, wire type, and the bytes after its tag and length."""

    number: int
    kind: int
    data: bytes

    def encoded(self) -> bytes:
        """Its bytes."""
        size = varint(len(self.data)) if self.kind == BYTES else b""
        return tag(self.number, self.kind) + size + self.data


def varint(number: int) -> bytes:
    """A number of at most 64 bits, seven bits a byte."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def tag(number: int, kind: int) -> bytes:
    """What stands before a field."""
    return varint(number << 3 | kind)


def fields_of(data: bytes) -> list[Field] | None:
    """The fields of a message; None when the bytes are none."""
    found, at = [], 0
    while at < len(data):
        head, at = _read_varint(data, at)
        number, kind = head >> 3, head & 7
        start = at
        if kind == VARINT:
            _, at = _read_varint(data, at)
        elif kind in _WIDTHS:
            at += _WIDTHS[kind]
        elif kind == BYTES:
            size, start = _read_varint(data, at)
            at = start + size if start >= 0 else -1
        else:
            return None
        if not 0 <= at <= len(data) or start < 0 or number == 0:
            return None
        found.append(Field(number, kind, data[start:at]))
    return found


def hurt(values: Values, data: bytes) -> bytes:
    """The bytes with one or several things wrong in them."""
    for _ in range(values.one((1, 1, 1, 2, 5))):
        fields = fields_of(data) if values.chance(0.7) else None
        data = _hurt_field(values, fields, 0) if fields else values.one(BYTE_CHANGES)(values, data)
    return data


def deep(number: int, levels: int) -> bytes:
    """A field inside itself so many times."""
    data = b""
    for _ in range(levels):
        data = Field(number, BYTES, data).encoded()
    return data


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number and where it ends; -1 where it does not."""
    number = shift = 0
    while 0 <= at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    return 0, -1


def _hurt_field(values: Values, fields: list[Field], depth: int) -> bytes:
    place = values.random.randrange(len(fields))
    field = fields[place]
    before = b"".join(one.encoded() for one in fields[:place])
    after = b"".join(one.encoded() for one in fields[place + 1 :])
    if field.kind == BYTES and depth < _DEEPEST and values.chance(0.6):
        nested = fields_of(field.data)
        if nested:
            inner = _hurt_field(values, nested, depth + 1)
            return before + Field(field.number, BYTES, inner).encoded() + after
    return before + values.one(_OF_FIELDS)(values, field) + after


# ---- one field ----------------------------------------------------------------------


def _doubled(values: Values, field: Field) -> bytes:
    return field.encoded() * values.one((2, 2, 3, 500))


def _left_out(values: Values, field: Field) -> bytes:
    return b""


def _other_kind(values: Values, field: Field) -> bytes:
    """The data under another wire type, groups that never end included."""
    kind = values.random.randrange(8)
    if kind == BYTES:
        return Field(field.number, kind, field.data).encoded()
    return tag(field.number, kind) + field.data


def _other_number(values: Values, field: Field) -> bytes:
    number = values.one((0, 1, 15, 16, 2047, 19_000, 2**29 - 1, 2**29, 2**35))
    return tag(number, field.kind) + field.encoded()[len(tag(field.number, field.kind)) :]


def _wrong_size(values: Values, field: Field) -> bytes:
    size = values.one((*_SIZES, len(field.data) + 1, max(0, len(field.data) - 1)))
    return tag(field.number, BYTES) + varint(size) + field.data


def _long_varint(values: Values, field: Field) -> bytes:
    ends = values.one((b"\x00", b"\x01", b"\x7f", b""))
    return tag(field.number, VARINT) + b"\x80" * values.random.randrange(1, 12) + ends


def _other_number_value(values: Values, field: Field) -> bytes:
    """An enum's unknown value, a number at a bound."""
    return tag(field.number, VARINT) + varint(values.integer(0, 2**64 - 1))


def _not_utf8(values: Values, field: Field) -> bytes:
    bad = values.one((b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"abc\xe2\x82"))
    return Field(field.number, BYTES, bad).encoded()


def _nested_deep(values: Values, field: Field) -> bytes:
    return deep(field.number, values.one((10, 99, 101, 1000, 3000)))


def _in_group(values: Values, field: Field) -> bytes:
    levels = values.one((1, 50, 200))
    opened, closed = tag(field.number, GROUP) * levels, tag(field.number, END_GROUP) * levels
    return opened + field.encoded() + (closed if values.chance(0.5) else b"")


def _other_data(values: Values, field: Field) -> bytes:
    return Field(field.number, BYTES, values.blob()).encoded()


_OF_FIELDS: Final[tuple[Callable[[Values, Field], bytes], ...]] = (
    _doubled, _left_out, _other_kind, _other_number, _wrong_size, _long_varint,
    _other_number_value, _not_utf8, _nested_deep, _in_group, _other_data,
)  # fmt: skip


# ---- bytes wherever -----------------------------------------------------------------


def _cut(values: Values, data: bytes) -> bytes:
    return data[: values.random.randrange(len(data) + 1)]


def _flipped(values: Values, data: bytes) -> bytes:
    spoilt = bytearray(data)
    for _ in range(values.random.randrange(1, 9) if spoilt else 0):
        spoilt[values.random.randrange(len(spoilt))] ^= 1 << values.random.randrange(8)
    return bytes(spoilt)


def _inserted(values: Values, data: bytes) -> bytes:
    at = values.random.randrange(len(data) + 1)
    return data[:at] + values.random.randbytes(values.random.randrange(1, 9)) + data[at:]


def _moved(values: Values, data: bytes) -> bytes:
    start, end = sorted(values.random.randrange(len(data) + 1) for _ in range(2))
    at = values.random.randrange(len(data) + 1)
    return data[:at] + data[start:end] + data[at:]


def _noise(values: Values, data: bytes) -> bytes:
    return values.random.randbytes(values.random.randrange(200))


BYTE_CHANGES: Final[tuple[Callable[[Values, bytes], bytes], ...]] = (
    _cut, _cut, _flipped, _flipped, _inserted, _moved, _noise,
)  # fmt: skip
