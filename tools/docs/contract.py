"""A page for each package of the contract, from the comments of its .proto files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from google.protobuf import descriptor_pb2

from tools.docs.markdown import cell, comment_text
from tools.docs.shelves import toctree
from tools.protos import PROTO_ROOT, contract_files, run_protoc

Proto = descriptor_pb2.FieldDescriptorProto
File = descriptor_pb2.FileDescriptorProto
Message = descriptor_pb2.DescriptorProto
Enum = descriptor_pb2.EnumDescriptorProto
Path_ = tuple[int, ...]
_OURS: Final = "gymmesh."
# The numbers of fields in the descriptors, as the paths of comments have them.
_PACKAGE, _MESSAGE, _ENUM, _SERVICE = 2, 4, 5, 6
_FIELD, _NESTED, _NESTED_ENUM, _VALUE, _METHOD = 2, 3, 4, 2, 2


def described() -> descriptor_pb2.FileDescriptorSet:
    """The contract as protoc describes it, with comments, without what it imports.

    Raises:
        ProtocError: protoc refused the contract.
    """
    with tempfile.TemporaryDirectory(prefix="gymmesh-docs-") as scratch:
        image = Path(scratch) / "contract.binpb"
        arguments = ["--include_source_info", f"--descriptor_set_out={image}"]
        run_protoc(PROTO_ROOT, arguments, contract_files(PROTO_ROOT))
        return descriptor_pb2.FileDescriptorSet.FromString(image.read_bytes())


def contract_pages(files: descriptor_pb2.FileDescriptorSet) -> dict[str, str]:
    """The pages by name: `index.md`, and one for each package, named by its noun."""
    packages: dict[str, list[File]] = {}
    for file in files.file:
        packages.setdefault(file.package, []).append(file)
    pages = {
        page_of(package): "\n".join(_package(package, members))
        for package, members in sorted(packages.items())
    }
    rows = [
        f"| [`{package}`]({page_of(package)}) | {_listed(members)} |"
        for package, members in sorted(packages.items())
    ]
    index = [
        "# The contract",
        "",
        "Every RPC, message and enum, in the words of the `.proto` files. "
        "[The transport](transport.md) has what holds for every connection and call.",
        "",
        "| package | services |",
        "|---|---|",
        *rows,
        "",
        toctree(["transport.md", *pages]),
    ]
    return {"index.md": "\n".join(index)} | pages


def page_of(package: str) -> str:
    """The page of a package: `rollout.md` of gymmesh.rollout.v1."""
    return package.split(".")[1] + ".md"


def _listed(files: list[File]) -> str:
    return ", ".join(f"`{one.name}`" for file in files for one in file.service)


def _package(package: str, files: list[File]) -> Iterator[str]:
    yield f"# {package}"
    yield ""
    for file in files:
        comments = {tuple(one.path): one for one in file.source_code_info.location}
        texts = {path: one.leading_comments for path, one in comments.items()}
        yield f"From `{file.name}`."
        yield ""
        if (_PACKAGE,) in comments:
            above = [*comments[_PACKAGE,].leading_detached_comments, texts[_PACKAGE,]]
            yield from _paragraphs("\n\n".join(above))
        yield from _services(file, texts)
        for place, message in enumerate(file.message_type):
            yield from _message(package, message, (_MESSAGE, place), texts)
        for place, enum in enumerate(file.enum_type):
            yield from _enum(package, enum, (_ENUM, place), texts)


def _services(file: File, comments: Mapping[Path_, str]) -> Iterator[str]:
    for place, service in enumerate(file.service):
        full = f"{file.package}.{service.name}"
        yield from _heading(2, f"Service {service.name}", full)
        yield from _paragraphs(comments.get((_SERVICE, place), ""))
        for index, method in enumerate(service.method):
            yield from _heading(3, f"rpc {method.name}", f"{full}.{method.name}")
            takes = ("stream of " if method.client_streaming else "") + _type(method.input_type)
            gives = ("stream of " if method.server_streaming else "") + _type(method.output_type)
            yield f"Request: {takes}. Response: {gives}."
            yield ""
            yield from _paragraphs(comments.get((_SERVICE, place, _METHOD, index), ""))


def _message(
    scope: str, message: Message, path: Path_, comments: Mapping[Path_, str]
) -> Iterator[str]:
    full = f"{scope}.{message.name}"
    yield from _heading(2, ".".join(full.split(".")[3:]), full)
    yield from _paragraphs(comments.get(path, ""))
    maps = {f".{full}.{one.name}": one for one in message.nested_type if one.options.map_entry}
    if message.field:
        yield "| field | type | what it is |"
        yield "|---|---|---|"
        for place, field in enumerate(message.field):
            words = cell(comments.get((*path, _FIELD, place), ""))
            kind = _field_type(field, message, maps)
            yield f"| `{field.name}` = {field.number} | {kind} | {words} |"
        yield ""
    for place, nested in enumerate(message.nested_type):
        if not nested.options.map_entry:
            yield from _message(full, nested, (*path, _NESTED, place), comments)
    for place, enum in enumerate(message.enum_type):
        yield from _enum(full, enum, (*path, _NESTED_ENUM, place), comments)


def _enum(scope: str, enum: Enum, path: Path_, comments: Mapping[Path_, str]) -> Iterator[str]:
    full = f"{scope}.{enum.name}"
    yield from _heading(2, ".".join(full.split(".")[3:]), full)
    yield from _paragraphs(comments.get(path, ""))
    yield "| value | what it is |"
    yield "|---|---|"
    for place, value in enumerate(enum.value):
        words = cell(comments.get((*path, _VALUE, place), ""))
        yield f"| `{value.name}` = {value.number} | {words} |"
    yield ""


def _heading(depth: int, title: str, label: str) -> Iterator[str]:
    yield f"({label})="
    yield f"{'#' * depth} {title}"
    yield ""


def _paragraphs(comment: str) -> Iterator[str]:
    """A comment's paragraphs; indented ones, such as diagrams, keep their lines."""
    for paragraph in comment.split("\n\n"):
        lines = [line.removeprefix(" ") for line in paragraph.strip("\n").splitlines()]
        blocks = "\n".join(lines).split("\n\n")
        for block in blocks:
            if not block.strip():
                continue
            if all(line.startswith("  ") or not line for line in block.splitlines()):
                yield f"```text\n{block}\n```"
            else:
                yield comment_text(" ".join(block.split()))
            yield ""


def _field_type(field: Proto, message: Message, maps: Mapping[str, Message]) -> str:
    if field.type_name in maps:
        key, value = maps[field.type_name].field
        return f"map of {_kind(key)} to {_kind(value)}"
    kind = _kind(field)
    if field.label == Proto.LABEL_REPEATED:
        return f"repeated {kind}"
    if field.proto3_optional:
        return f"optional {kind}"
    if field.HasField("oneof_index"):
        return f"{kind}, one of `{message.oneof_decl[field.oneof_index].name}`"
    return kind


def _kind(field: Proto) -> str:
    if field.type_name:
        return _type(field.type_name)
    return Proto.Type.Name(field.type).removeprefix("TYPE_").lower()


def _type(name: str) -> str:
    """A message or enum by its full name: a link where it is ours."""
    full = name.lstrip(".")
    if not full.startswith(_OURS):
        return f"`{full}`"
    return f"[{'.'.join(full.split('.')[3:])}](#{full})"
