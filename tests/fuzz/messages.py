"""Messages of any type as its descriptor allows them: made up, or good ones changed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.fuzz.values import Values

_F: Final = FieldDescriptor
#: A field's descriptor, for which the stubs have two types.
_Field: TypeAlias = Any
_DEEPEST: Final = 6
_SHARE: Final = 0.4  # of the fields that a made-up message sets
_WHOLE: Final = {
    _F.TYPE_INT32: (-(2**31), 2**31 - 1),
    _F.TYPE_SINT32: (-(2**31), 2**31 - 1),
    _F.TYPE_SFIXED32: (-(2**31), 2**31 - 1),
    _F.TYPE_UINT32: (0, 2**32 - 1),
    _F.TYPE_FIXED32: (0, 2**32 - 1),
    _F.TYPE_INT64: (-(2**63), 2**63 - 1),
    _F.TYPE_SINT64: (-(2**63), 2**63 - 1),
    _F.TYPE_SFIXED64: (-(2**63), 2**63 - 1),
    _F.TYPE_UINT64: (0, 2**64 - 1),
    _F.TYPE_FIXED64: (0, 2**64 - 1),
}


def made_up(values: Values, kind: type[Message], share: float = _SHARE) -> Message:
    """A message of a type, a share of its fields set."""
    message = kind()
    _fill(values, message, share, 0)
    return message


def changed(values: Values, good: Message) -> Message:
    """A copy of a message with up to three of its fields changed, at any depth."""
    message = type(good)()
    message.CopyFrom(good)
    for _ in range(values.one((1, 1, 2, 3))):
        if sites := _sites(message, 0):  # some have no fields
            values.one(_CHANGES)(values, *values.one(sites))
    return message


def _sites(message: Message, depth: int) -> list[tuple[Message, _Field]]:
    """All fields of a message and of those in it; those that are set more often, as they say more,
    and documents most of all.
    """
    found = [(message, field) for field in message.DESCRIPTOR.fields]
    for field, value in message.ListFields():
        found += [(message, field)] * (8 if field.name.endswith("_json") else 1)
        if field.message_type is None or depth >= _DEEPEST or _is_map(field):
            continue
        for one in value if field.is_repeated else (value,):
            found += _sites(one, depth + 1)
    return found


def _fill(values: Values, message: Message, share: float, depth: int) -> None:
    among: Any = message.DESCRIPTOR.oneofs
    chosen = {one.name: values.one(one.fields).number for one in among}
    for field in message.DESCRIPTOR.fields:
        oneof = field.containing_oneof
        if oneof is not None and chosen[oneof.name] != field.number:
            continue  # the last one set would be left alone
        if values.chance(share if depth < 3 else share / 2):
            _set(values, message, field, depth)


def _set(values: Values, message: Message, field: _Field, depth: int) -> None:
    """Give a field a random value; a repeated one some more."""
    if _is_map(field):
        _put(values, message, field, depth)
    elif field.is_repeated:
        holder: Any = getattr(message, field.name)
        for _ in range(values.few()):
            if field.message_type is None:
                holder.append(_scalar(values, field))
            elif depth < _DEEPEST:
                _fill(values, holder.add(), _SHARE, depth + 1)
    elif field.message_type is None:
        setattr(message, field.name, _scalar(values, field))
    else:
        nested: Message = getattr(message, field.name)
        nested.SetInParent()
        if depth < _DEEPEST:
            _fill(values, nested, _SHARE, depth + 1)


def _put(values: Values, message: Message, field: _Field, depth: int) -> None:
    """Put some entries into a map."""
    assert field.message_type is not None
    of = field.message_type.fields_by_name
    entries: Any = getattr(message, field.name)
    for _ in range(values.few()):
        key = _scalar(values, of["key"])
        if of["value"].message_type is None:
            entries[key] = _scalar(values, of["value"])
        elif depth < _DEEPEST:
            _fill(values, entries[key], _SHARE, depth + 1)


def _scalar(values: Values, field: _Field) -> Any:
    if field.type == _F.TYPE_STRING:
        return values.text(field.name)
    if field.type == _F.TYPE_BYTES:
        return values.blob(field.name)
    if field.type == _F.TYPE_BOOL:
        return values.chance(0.5)
    if field.type == _F.TYPE_ENUM:
        assert field.enum_type is not None
        known = [value.number for value in field.enum_type.values]
        return values.one(known) if values.chance(0.8) else values.integer(-(2**31), 2**31 - 1)
    if field.type in _WHOLE:
        return values.integer(*_WHOLE[field.type])
    return values.number()


def _is_map(field: _Field) -> bool:
    kind = field.message_type
    return kind is not None and bool(kind.GetOptions().map_entry)


# ---- changes of one field -----------------------------------------------------------


def _cleared(values: Values, message: Message, field: _Field) -> None:
    message.ClearField(field.name)


def _replaced(values: Values, message: Message, field: _Field) -> None:
    message.ClearField(field.name)
    _set(values, message, field, 2)


def _doubled(values: Values, message: Message, field: _Field) -> None:
    if field.is_repeated and not _is_map(field):
        held: Any = getattr(message, field.name)
        held.extend(list(held)[:100])
    else:
        _replaced(values, message, field)


def _reordered(values: Values, message: Message, field: _Field) -> None:
    if field.is_repeated and not _is_map(field):
        held: Any = getattr(message, field.name)
        ordered = copy.deepcopy(list(held))
        values.random.shuffle(ordered)
        message.ClearField(field.name)
        held.extend(ordered)
    else:
        _replaced(values, message, field)


def _other_document(values: Values, message: Message, field: _Field) -> None:
    """JSON in a field with one of its values changed, so that the rest is as it should be."""
    if field.type != _F.TYPE_BYTES or field.is_repeated or not field.name.endswith("_json"):
        _replaced(values, message, field)
        return
    try:
        document = json.loads(getattr(message, field.name))
        setattr(message, field.name, json.dumps(values.changed_json(document)).encode())
    except (ValueError, RecursionError):
        setattr(message, field.name, values.json_text())


_CHANGES: Final[tuple[Callable[[Values, Message, _Field], None], ...]] = (
    _cleared, _replaced, _replaced, _doubled, _reordered, _other_document, _other_document,
)  # fmt: skip
