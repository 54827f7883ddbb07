"""Writes proto/python/gymmesh_rows/columns.py: the messages of a row as msgspec Structs.

Each Struct has the keys and the omissions that gymmesh/json/v1/json.proto asks for, so that msgspec
writes and reads the JSON. Messages that a rollout has as they are get a function `of`, which makes
the Struct of the message. Those in SOURCES are put together: the fields whose name and type a
source has are copied of it, and all others are arguments.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gymmesh.json.v1 import json_pb2
from tools.rows.contract import ROW, Column, Contract, ContractError, Message, Proto, lines_of

_INTEGERS: Final = (
    *(Proto.TYPE_INT32, Proto.TYPE_INT64, Proto.TYPE_UINT32, Proto.TYPE_UINT64),
    *(Proto.TYPE_SINT32, Proto.TYPE_SINT64, Proto.TYPE_FIXED32, Proto.TYPE_FIXED64),
)
_FRACTIONS: Final = (Proto.TYPE_DOUBLE, Proto.TYPE_FLOAT)
# What bytes are in Python, and what makes it of them.
_BYTES: Final = {
    json_pb2.BYTES_FORM_UNSPECIFIED: ("str", "bytes_to_text"),
    json_pb2.BYTES_FORM_CUT_TEXT: ("str", "values.cut_text"),
    json_pb2.BYTES_FORM_INT32: ("list[int]", "values.ids"),
    json_pb2.BYTES_FORM_FLOAT32: ("list[float | None]", "values.logprobs"),
    json_pb2.BYTES_FORM_HEX: ("str", "bytes.hex"),
    json_pb2.BYTES_FORM_BASE64: ("str", "values.base64_text"),
}
# What writes the parts of a Responses document.
_CODEC: Final = {
    "gymmesh.responses.v1.Item": "values.item",
    "gymmesh.responses.v1.Usage": "values.usage",
    "gymmesh.responses.v1.IncompleteDetails": "values.incomplete_details",
    "gymmesh.responses.v1.ResponseError": "values.response_error",
}
_EMPTY: Final = {"str": '""', "bool": "False", "int": "0"}


@dataclass(frozen=True)
class _Value:
    """The code of a column's value.

    Attributes:
        code: where there is something.
        condition: whether there is.
        whole: in either case.
    """

    code: str
    condition: str
    whole: str


@dataclass(frozen=True)
class Source:
    """What fields of a row's message are copied from.

    Attributes:
        name: the argument.
        message: its message's full name.
        of: its type in Python, where it is not that message.
        maybe: whether there may be none.
    """

    name: str
    message: str
    of: str = ""
    maybe: bool = False


SOURCES: Final = {
    "Row": [
        Source("verified", "gymmesh.rollout.v1.Verified", maybe=True),
        Source("completed", "gymmesh.rollout.v1.Completed", maybe=True),
        Source("rollout", "gymmesh.rollout.v1.Rollout", of="RolloutFields"),
        Source("task", "gymmesh.rollout.v1.Task"),
    ],
    "ModelCall": [
        Source("call", "gymmesh.rollout.v1.ModelCallCompleted"),
        Source("answer", "gymmesh.responses.v1.Response"),
    ],
    "ToolCall": [Source("done", "gymmesh.rollout.v1.ToolCallCompleted")],
    "Turn": [Source("taken", "gymmesh.rollout.v1.TurnCompleted")],
}
# The comments of these say more than that they are copied.
_BY_HAND: Final = {"Row": ("environment", "agent")}

_HEAD: Final = '''"""The columns of a row. Generated from proto/gymmesh. Do not edit.

Each message of gymmesh/row/v1 and what it is made of, as gymmesh/json/v1 has them written. Bytes
that hold JSON, and parts of Responses documents, are JSON text (`msgspec.Raw`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw, UnsetType

'''


class ColumnsWriter:
    """Writes the module."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self._messages = contract.rows()
        self._enums: dict[str, str] = {}
        self._modules: set[tuple[str, str]] = set()

    def text(self) -> str:
        """The module's text."""
        body: list[str] = []
        for message in self._messages:
            body += self._struct(message)
        row = self._contract.messages[ROW]
        body += [*self._fields_of_rollout(row), *self._line(row)]
        head = [_HEAD.rstrip("\n")]
        head += [f"from {package} import {module}" for package, module in sorted(self._modules)]
        head += ["from gymmesh_responses import bytes_to_text"] * ("bytes_to_text(" in str(body))
        head += ["from gymmesh_rows import values", "from gymmesh_rows.names import EnumNames", ""]
        head += [
            f'{name} = EnumNames({self._enum_type(full)}, "{_prefix(full)}")'
            for full, name in sorted(self._enums.items(), key=lambda one: one[1])
        ]
        return "\n".join([*head, *body]) + "\n"

    # -- structs ----------------------------------------------------------------------------------

    def _struct(self, message: Message) -> Iterator[str]:
        for column in message.columns:
            if column.options.within:
                yield from _within(message, column)
        # The reader of rows keeps more with a Row, which msgspec allows only of what is collected.
        options = "kw_only=True, omit_defaults=True" + (
            "" if message.name == "Row" else ", gc=False"
        )
        yield from ("", "", f"class {message.name}(msgspec.Struct, {options}):")
        yield from _docstring(message)
        for column in message.columns:
            if column.is_overlay:
                continue
            yield f"    {self._declared(message, column)}"
        for column in message.columns:
            if column.options.within:
                yield from ("", "    @property", f"    def {column.name}(self) -> int:")
                yield f'        """{_first_line(column.comment)}"""'
                yield f"        return self.{column.options.within}.{column.key}"
        if message.name in SOURCES and message.full_name != ROW:
            yield from self._maker(message)
        elif not message.full_name.startswith("gymmesh.row."):
            yield from self._copier(message)

    def _declared(self, message: Message, column: Column) -> str:
        """A field of a Struct."""
        if column.options.within:
            return f"{column.options.within}: {_within_name(message, column)}"
        kind, default = self._type(column), self._default(column)
        name = column.key_in_python
        if name != column.key:
            given = f"default={default}, " if default else ""
            return f'{name}: {kind} = msgspec.field({given}name="{column.key}")'
        return f"{name}: {kind} = {default}" if default else f"{name}: {kind}"

    def _type(self, column: Column) -> str:
        if column.is_map:
            return "dict[str, str]"
        kind = self._plain_type(column)
        if column.repeated:
            return f"list[{kind}]"
        if column.is_message and column.options.always:
            return kind  # what is always written has always been made
        if column.has_presence or (column.holds_json and not column.options.always):
            return f"{kind} | None" if column.options.always else f"{kind} | UnsetType"
        return kind

    def _plain_type(self, column: Column) -> str:
        proto = column.proto
        if column.holds_json or column.is_coded:
            return "Raw"
        if column.is_message:
            return column.type_name.rpartition(".")[2]
        if proto.type == Proto.TYPE_BYTES:
            return _BYTES[column.options.bytes][0]
        if proto.type in (Proto.TYPE_STRING, Proto.TYPE_ENUM):
            return "str"
        if proto.type == Proto.TYPE_BOOL:
            return "bool"
        if proto.type in _INTEGERS:
            return "int"
        if proto.type in _FRACTIONS:
            return "float"
        raise ContractError(f"{column.name}: a field of this type has no JSON in rows")

    def _default(self, column: Column) -> str:
        """What is left out; empty: it is always written."""
        if column.options.always:
            return ""
        if column.is_map:
            return "{}"
        if column.repeated:
            return "[]"
        if column.has_presence or column.holds_json:
            return "UNSET"
        if column.proto.type == Proto.TYPE_ENUM:
            return '"UNSPECIFIED"'
        kind = self._plain_type(column)
        return "[]" if kind.startswith("list") else _EMPTY[kind]

    # -- made of messages -------------------------------------------------------------------------

    def _copier(self, message: Message) -> Iterator[str]:
        """`of`: the Struct of a message that has all its fields."""
        kind = self._stub(message)
        yield from ("", "    @staticmethod", f"    def of(message: {kind}) -> {message.name}:")
        yield '        """The columns of a message."""'
        yield from self._made_of(message.name, message.columns, self._values("message", message))
        yield "        return made"

    def _values(self, name: str, message: Message) -> dict[str, _Value]:
        """How each column of a message is copied of a message of the same kind."""
        return {column.name: self._copied(name, column, column) for column in message.columns}

    def _made_of(
        self, kind: str, columns: Sequence[Column], found: Mapping[str, _Value]
    ) -> Iterator[str]:
        """Makes a Struct of what is always written, and sets the other columns where there is
        something: most have nothing, and each argument costs.
        """
        yield f"        made = {kind}("
        rest = []
        for column in columns:
            value = found[column.name]
            if self._default(column):
                rest.append((column.key_in_python, value))
            else:
                yield f"            {column.key_in_python}={value.whole},"
        yield "        )"
        for key, value in rest:
            yield f"        if {value.condition}:"
            yield f"            made.{key} = {value.code}"

    def _maker(self, message: Message) -> Iterator[str]:
        """`of`: a Struct made of its sources, and of arguments for what none of them has."""
        copied, given = self._shared(message)
        arguments = [f"{one.name}: {self._source_type(one)}" for one in SOURCES[message.name]]
        named = [f"{one.key_in_python}: {self._type(one)}" for one in given]
        star = ["*"] * bool(named)
        yield from ("", "    @staticmethod", "    def of(")
        yield from (f"        {one}," for one in [*arguments, *star, *named])
        yield f"    ) -> {message.name}:"
        yield '        """The columns of what it is made of, and those that are computed."""'
        found = {**copied, **{one.name: self._given(one) for one in given}}
        yield from self._made_of(message.name, message.columns, found)
        yield "        return made"

    def _given(self, column: Column) -> _Value:
        """The value of a column that is an argument."""
        name = column.key_in_python
        unset = self._default(column) == "UNSET"
        return _Value(name, f"{name} is not UNSET" if unset else name, name)

    def _line(self, row: Message) -> Iterator[str]:
        """`row_line`, and the Struct that it writes: long lists and objects with an overlay are
        JSON text in it.
        """
        columns = [one for one in row.columns if not one.is_overlay]
        yield from (
            "",
            "",
            "class _Line(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):",
        )
        yield '    """A Row in which lists and the objects with an overlay may be JSON text."""'
        yield ""
        for column in columns:
            kind, default = self._type(column), self._default(column)
            if column.is_message:
                kind = "Any"
            text = f"{column.key_in_python}: {kind}"
            yield f"    {text} = {default}" if default else f"    {text}"
        copied, given = self._shared(row)
        given = [one for one in given if not one.is_overlay]
        yield from ("", "", "def row_line(")
        for source in SOURCES["Row"]:
            yield f"    {source.name}: {self._source_type(source)},"
        yield "    *,"
        for column in given:
            kind = "Raw" if self._has_overlay(column) else self._type(column)
            if column.repeated:
                kind = kind.replace("list[", "Iterable[", 1)
            default = self._default(column)
            optional = f" = {default}" if default and "[" not in kind else ""
            yield f"    {column.key_in_python}: {kind}{optional},"
        yield '    overlay: bytes = b"",'
        yield ") -> bytes:"
        yield '    """A row as one line of JSON, without the newline.'
        yield ""
        yield "    Made of its sources and of the columns that are computed. `response` and"
        yield "    `metadata` are JSON text with what stands in their overlays; `overlay` is an"
        yield "    object. Of a long list that an iterator makes, few elements exist at a time."
        yield "    Raises ValueError for what JSON does not have."
        yield '    """'
        found = {**copied, **{one.name: self._given(one) for one in given}}
        for column in columns:
            if column.repeated and column.is_message:
                value = found[column.name]
                code = value.code
                if column not in given:
                    code = f"{self._made('one', column)} for one in {value.condition}[:]"
                found[column.name] = replace(value, code=f"values.listed({code})")
        yield from (line[4:] for line in self._made_of("_Line", columns, found))
        yield "    return values.with_overlay(values.encode(made), overlay)"

    def _fields_of_rollout(self, row: Message) -> Iterator[str]:
        """The protocol of what has a rollout's fields."""
        rollout = self._contract.messages["gymmesh.rollout.v1.Rollout"]
        yield from ("", "", "class RolloutFields(Protocol):")
        yield '    """The fields of a Rollout that a row copies; None: not set."""'
        yield ""
        for column in row.columns:
            source = rollout.column(column.name)
            if source is None or not _same_type(column, source):
                continue
            kind = self._plain_type(source)
            if source.is_message:
                kind = self._stub(self._contract.messages[source.type_name])
            kind = f"list[{kind}]" if source.repeated else kind
            kind = f"{kind} | None" if source.has_presence else kind
            yield "    @property"
            yield f"    def {column.name}(self) -> {kind}: ..."

    def _shared(self, message: Message) -> tuple[dict[str, _Value], list[Column]]:
        """The code of each column that is copied of a source, and the columns of which none is."""
        copied: dict[str, _Value] = {}
        given: list[Column] = []
        for column in message.columns:
            having = []
            for source in SOURCES[message.name]:
                theirs = self._contract.messages[source.message].column(column.name)
                if theirs is not None and _same_type(column, theirs):
                    having.append(self._copied_of(source, theirs, column))
            if having and column.name not in _BY_HAND.get(message.name, ()):
                copied[column.name] = self._first_set(column, having)
            else:
                given.append(column)
        return copied, given

    def _first_set(self, column: Column, having: Sequence[_Value]) -> _Value:
        if len(having) == 1:
            return having[0]
        if column.proto.type not in (Proto.TYPE_STRING, *_INTEGERS) or column.has_presence:
            raise ContractError(f"{column.name}: several sources have it")
        either = " or ".join(one.code for one in having)
        return _Value(either, either, either)

    def _copied_of(self, source: Source, theirs: Column, column: Column) -> _Value:
        """A column of one of its message's sources."""
        if not source.of:
            value = self._copied(source.name, column, theirs)
            if not source.maybe:
                return value
            there = f"{source.name} is not None"
            if not self._default(column):
                raise ContractError(f"{column.name}: is always written, and may have no source")
            return replace(value, condition=f"{there} and {value.condition}")
        place = f"{source.name}.{theirs.name}"
        if theirs.has_presence:
            made = self._made(place, column)
            return _Value(made, f"{place} is not None", f"{made} if {place} is not None else None")
        return self._plain(place, column)

    def _copied(self, name: str, column: Column, theirs: Column) -> _Value:
        """A column of a message that has it as a field."""
        place = f"{name}.{theirs.name}"
        if theirs.has_presence and column.has_presence:
            made = self._made(place, column)
            condition = f'{name}.HasField("{theirs.name}")'
            return _Value(made, condition, f"{made} if {condition} else None")
        return self._plain(place, column)

    def _plain(self, place: str, column: Column) -> _Value:
        """A field that is set when it is not empty."""
        if column.is_map:
            code = f"dict(sorted({place}.items()))"
            return _Value(code, place, f"{code} if {place} else {{}}")
        if column.repeated:
            made = self._made("one", column)
            # By a copy: protobuf's own iteration over a list is slower.
            code = f"{place}[:]" if made == "one" else f"[{made} for one in {place}[:]]"
            return _Value(code, place, f"{code} if {place} else []")
        code = self._made(place, column)
        if column.holds_json:
            return _Value(code, place, f'{code} if {place} else Raw(b"{{}}")')
        return _Value(code, place, code)

    def _made(self, place: str, column: Column) -> str:
        """The code that makes JSON of one value."""
        proto = column.proto
        if column.holds_json:
            return f'values.json_text({place}, "{column.key}")'
        if column.is_coded:
            return f"{_CODEC[column.type_name]}({place})"
        if column.is_message:
            return f"{column.type_name.rpartition('.')[2]}.of({place})"
        if proto.type == Proto.TYPE_ENUM:
            return f"{self._names(column.type_name)}[{place}]"
        if proto.type == Proto.TYPE_BYTES:
            return f"{_BYTES[column.options.bytes][1]}({place})"
        if proto.type in _FRACTIONS:
            return f'values.finite({place}, "{column.key}")'
        return place

    def _has_overlay(self, column: Column) -> bool:
        if not column.is_message or column.is_coded or column.repeated:
            return False
        return self._contract.messages[column.type_name].column("overlay_json") is not None

    def _source_type(self, source: Source) -> str:
        kind = source.of or self._stub(self._contract.messages[source.message])
        return f"{kind} | None" if source.maybe else kind

    def _stub(self, message: Message) -> str:
        self._modules.add((message.package, message.module))
        return f"{message.module}.{message.name}"

    def _names(self, enum: str) -> str:
        return self._enums.setdefault(enum, f"_{enum.rpartition('.')[2]}Names")

    def _enum_type(self, full: str) -> str:
        package, module = self._contract.enums[full]
        self._modules.add((package, module))
        return f"{module}.{full.rpartition('.')[2]}"


def _same_type(one: Column, other: Column) -> bool:
    if one.is_map or other.is_map:
        return one.is_map and other.is_map
    return (
        one.proto.type == other.proto.type
        and one.proto.type_name == other.proto.type_name
        and one.proto.label == other.proto.label
    )


def _within_name(message: Message, column: Column) -> str:
    words = column.options.within.split("_")
    return f"{message.name}{''.join(word.capitalize() for word in words)}"


def _within(message: Message, column: Column) -> Iterator[str]:
    name = _within_name(message, column)
    yield from ("", "", f"class {name}(msgspec.Struct, gc=False):")
    yield f'    """The object around `{message.name}.{column.name}`."""'
    yield from ("", f"    {column.key}: int")


def _docstring(message: Message) -> Iterator[str]:
    paragraphs = " ".join(lines_of(message.comment))
    yield from _wrapped(f'"""{paragraphs}', "    ")
    yield from ("", "    Attributes:")
    for column in message.columns:
        if column.is_overlay:
            continue
        text = f"{column.key_in_python}: {' '.join(lines_of(column.comment))}"
        yield from _wrapped(text, "        ", "            ")
    yield from ('    """', "")


def _wrapped(text: str, indent: str, further: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        100,
        initial_indent=indent,
        subsequent_indent=indent if further is None else further,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _first_line(comment: str) -> str:
    return " ".join(lines_of(comment))


def _prefix(enum: str) -> str:
    name = enum.rpartition(".")[2]
    spaced = "".join(f"_{letter}" if letter.isupper() else letter for letter in name)
    return f"{spaced.lstrip('_').upper()}_"


def columns_text(contract: Contract) -> str:
    """The text of proto/python/gymmesh_rows/columns.py, before the formatter."""
    return ColumnsWriter(contract).text()
