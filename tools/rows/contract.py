"""The messages that a row is made of, as protoc describes them, with their comments."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from google.protobuf import descriptor_pb2

from gymmesh.json.v1 import json_pb2
from tools.protos import PROTO_ROOT, run_protoc

Proto = descriptor_pb2.FieldDescriptorProto
ROW: Final = "gymmesh.row.v1.Row"
# Responses documents have a codec of their own.
_CODED: Final = "gymmesh.responses.v1."
_FIELD_NUMBER: Final = 2  # of `field` in DescriptorProto, as paths of comments have it


class ContractError(Exception):
    """The schema of rows has something that no rule of JSON covers."""


@dataclass(frozen=True)
class Column:
    """A field of a message.

    Attributes:
        key: its key in JSON.
        options: what the contract says of its JSON.
    """

    name: str
    comment: str
    proto: Proto
    options: json_pb2.FieldJson
    is_map: bool

    @property
    def key(self) -> str:
        """Its key in JSON."""
        if self.options.key:
            return self.options.key
        return self.name.removesuffix("_json") if self.holds_json else self.name

    @property
    def key_in_python(self) -> str:
        """Its attribute's name."""
        return self.name.removesuffix("_json") if self.holds_json else self.name

    @property
    def holds_json(self) -> bool:
        """Whether it is bytes that hold JSON."""
        return self.proto.type == Proto.TYPE_BYTES and self.name.endswith("_json")

    @property
    def is_overlay(self) -> bool:
        """Whether its members are the object's own."""
        return self.name == "overlay_json"

    @property
    def repeated(self) -> bool:
        """Whether it is a list; a map is none."""
        return self.proto.label == Proto.LABEL_REPEATED and not self.is_map

    @property
    def is_message(self) -> bool:
        """Whether it is a message, or a list of messages."""
        return self.proto.type == Proto.TYPE_MESSAGE and not self.is_map

    @property
    def has_presence(self) -> bool:
        """Whether not set differs from empty."""
        if self.repeated or self.is_map:
            return False
        return self.is_message or self.proto.proto3_optional

    @property
    def type_name(self) -> str:
        """The full name of its message or enum."""
        return self.proto.type_name.lstrip(".")

    @property
    def is_coded(self) -> bool:
        """Whether it is a part of a Responses document."""
        return self.is_message and self.type_name.startswith(_CODED)


@dataclass(frozen=True)
class Message:
    """A message.

    Attributes:
        module: of its stub: `rollout_pb2`.
        package: of that: `gymmesh.rollout.v1`.
    """

    full_name: str
    comment: str
    package: str
    module: str
    columns: list[Column] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its own name, without the package."""
        return self.full_name.rpartition(".")[2]

    def column(self, name: str) -> Column | None:
        """Its field of this name."""
        return next((one for one in self.columns if one.name == name), None)


class Contract:
    """All messages and enums of the contract, by their full names."""

    def __init__(self, proto_root: Path = PROTO_ROOT) -> None:
        self.messages: dict[str, Message] = {}
        # The package and the module of each enum.
        self.enums: dict[str, tuple[str, str]] = {}
        for file in _described(proto_root).file:
            if file.package.startswith("gymmesh."):
                self._read(file)

    def rows(self) -> list[Message]:
        """The messages of a row, each before those that have it as a field; Row is the last.

        Raises:
            ContractError: one has something that the rule of JSON does not cover in rows.
        """
        found: dict[str, Message] = {}
        self._visit(self.messages[ROW], found)
        return list(found.values())

    def _visit(self, message: Message, found: dict[str, Message]) -> None:
        for column in message.columns:
            if column.is_message and not column.is_coded:
                self._visit(self.messages[column.type_name], found)
            _check(message, column)
        found[message.full_name] = message

    def _read(self, file: descriptor_pb2.FileDescriptorProto) -> None:
        module = Path(file.name).stem + "_pb2"
        comments = {tuple(one.path): one.leading_comments for one in file.source_code_info.location}
        for enum in file.enum_type:
            self.enums[f"{file.package}.{enum.name}"] = (file.package, module)
        for place, proto in enumerate(file.message_type):
            path = (descriptor_pb2.FileDescriptorProto.MESSAGE_TYPE_FIELD_NUMBER, place)
            message = Message(
                f"{file.package}.{proto.name}", comments.get(path, ""), file.package, module
            )
            maps = {one.name for one in proto.nested_type if one.options.map_entry}
            numbered = sorted(enumerate(proto.field), key=lambda one: one[1].number)
            for index, one in numbered:
                options = one.options.Extensions[json_pb2.field]
                is_map = one.type_name.rpartition(".")[2] in maps
                text = comments.get((*path, _FIELD_NUMBER, index), "")
                message.columns.append(Column(one.name, text, one, options, is_map))
            self.messages[message.full_name] = message


def lines_of(comment: str) -> Iterator[str]:
    """The lines of a comment."""
    return (line.strip() for line in comment.strip().splitlines())


def _check(message: Message, column: Column) -> None:
    proto, options = column.proto, column.options
    place = f"{message.full_name}.{column.name}"
    if proto.HasField("oneof_index") and not proto.proto3_optional:
        raise ContractError(f"{place}: rows have no oneof; the columns' generator must learn it")
    if options.marker or options.form_of or options.part_type:
        raise ContractError(f"{place}: this option is for Responses documents")
    if proto.type in (Proto.TYPE_DOUBLE, Proto.TYPE_FLOAT) and not (
        column.has_presence or options.always or column.repeated
    ):
        raise ContractError(f"{place}: a number with a fraction is `optional` or written `always`")
    if not any(lines_of(column.comment)):
        raise ContractError(f"{place}: has no comment, which is what the page of rows says of it")


def _described(proto_root: Path) -> descriptor_pb2.FileDescriptorSet:
    with tempfile.TemporaryDirectory(prefix="gymmesh-rows-") as scratch:
        image = Path(scratch) / "contract.binpb"
        arguments = [
            "--include_imports",
            "--include_source_info",
            f"--descriptor_set_out={image}",
        ]
        run_protoc(proto_root, arguments, ["gymmesh/row/v1/row.proto"])
        return descriptor_pb2.FileDescriptorSet.FromString(image.read_bytes())
