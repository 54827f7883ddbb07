"""Writes docs/reference/rows.md: the columns of a row, in the words of the contract."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gymmesh.json.v1 import json_pb2
from tools.rows.contract import ROW, Column, Contract, Message, Proto, lines_of

_HEAD: Final = (
    "# The columns of a row\n\n"
    "<!-- Generated from the comments of proto/gymmesh/row/v1 by `make proto`. Do not edit. -->\n\n"
    "A collector writes [a row](../how-to/collecting.md#output-rows), a JSON object, for each "
    "rollout. This page lists the keys of a row. A key without a value is absent, unless the table "
    "says *always*. A row also contains keys that this page does not list: all other keys of the "
    "task row, and the keys of the verdict's `evidence`. Values of the types `Item`, `Usage`, "
    "`IncompleteDetails` and `ResponseError` are objects of OpenAI's Responses API.\n"
)
_BYTES: Final = {
    json_pb2.BYTES_FORM_UNSPECIFIED: "text",
    json_pb2.BYTES_FORM_CUT_TEXT: "text",
    json_pb2.BYTES_FORM_INT32: "list of integers",
    json_pb2.BYTES_FORM_FLOAT32: "list of numbers; null for a number that is not finite",
    json_pb2.BYTES_FORM_HEX: "text in hexadecimal digits",
    json_pb2.BYTES_FORM_BASE64: "text in Base64",
}


def page_text(contract: Contract) -> str:
    """The page."""
    return "\n".join([_HEAD, *_sections(contract)]).rstrip("\n") + "\n"


def _sections(contract: Contract) -> Iterator[str]:
    for message in _in_order(contract, contract.messages[ROW]):
        yield f"## {message.name}"
        yield ""
        yield " ".join(lines_of(message.comment))
        yield ""
        yield "| key | value | meaning |"
        yield "|---|---|---|"
        for column in message.columns:
            if not column.is_overlay:
                yield f"| {_key(column)} | {_value(column)} | {_words(column)} |"
        yield ""


def _in_order(contract: Contract, message: Message) -> list[Message]:
    """A message, and those below it, each after the first that has it as a field."""
    found = {message.full_name: message}
    waiting = [message]
    while waiting:
        for column in waiting.pop(0).columns:
            if column.is_message and not column.is_coded and column.type_name not in found:
                found[column.type_name] = contract.messages[column.type_name]
                waiting.append(found[column.type_name])
    return list(found.values())


def _key(column: Column) -> str:
    within = column.options.within
    return f"`{within}.{column.key}`" if within else f"`{column.key}`"


def _words(column: Column) -> str:
    return " ".join(lines_of(column.comment)).replace("|", "\\|")


def _value(column: Column) -> str:
    kind = _one(column)
    if column.is_map:
        kind = "object of texts"
    elif column.repeated:
        kind = f"list of {kind}"
    if not column.options.always:
        return kind
    return f"{kind} or null, always" if column.proto.proto3_optional else f"{kind}, always"


def _one(column: Column) -> str:
    if column.holds_json:
        return "JSON"
    name = column.type_name.rpartition(".")[2]
    if column.is_coded:
        return name
    if column.is_message:
        return f"[{name}](#{name.lower()})"
    if column.proto.type == Proto.TYPE_BYTES:
        return _BYTES[column.options.bytes]
    if column.proto.type in (Proto.TYPE_STRING, Proto.TYPE_ENUM):
        return "text"
    return "boolean" if column.proto.type == Proto.TYPE_BOOL else "number"
