"""Checks that the stubs of the clients in other languages are of the contract as it is.

    python tools/client_stubs.py    fail, with a sentence for each client, where they are not

Each client commits its stubs, and generates them with its language's own tools. The descriptors in
them can be read without these tools, so `make check` finds stale ones on a machine that has only
Python. Descriptors have no comments; each client's `check-generated` compares these, too.
"""

from __future__ import annotations

import ast
import base64
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet

# The script's folder is all that Python looks in.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.protos import PROTO_ROOT, ROOT, ProtocError, contract_files, run_protoc

Described = dict[str, FileDescriptorProto]
_GO: Final = re.compile(r'_rawDesc = ""((?: \+\n\t"(?:[^"\\]|\\.)*")+)')
_GO_LINE: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_TYPESCRIPT: Final = re.compile(r'fileDesc\(\s*"([^"]*)"')


def of_go(folder: Path) -> Iterator[FileDescriptorProto]:
    """What the Go stubs below a folder say: each file has its descriptor as text."""
    for path in sorted(folder.rglob("*.pb.go")):
        found = _GO.search(path.read_text(encoding="utf-8"))
        if found is not None:  # a file of services alone has none
            lines = (ast.literal_eval(f"b{line}") for line in _GO_LINE.findall(found[1]))
            yield FileDescriptorProto.FromString(b"".join(lines))


def of_typescript(folder: Path) -> Iterator[FileDescriptorProto]:
    """What the TypeScript stubs below a folder say: each has its descriptor in base64, unpadded."""
    for path in sorted(folder.rglob("*_pb.ts")):
        found = _TYPESCRIPT.search(path.read_text(encoding="utf-8"))
        if found is not None:
            yield FileDescriptorProto.FromString(base64.b64decode(found[1] + "=="))


def of_rust(folder: Path) -> Iterator[FileDescriptorProto]:
    """What the Rust stubs in a folder say: all descriptors are in one file."""
    image = folder / "descriptors.bin"
    if image.exists():  # else all are stale
        yield from FileDescriptorSet.FromString(image.read_bytes()).file


# Java generates its stubs whenever it builds.
CLIENTS: Final[Mapping[str, tuple[str, Callable[[Path], Iterator[FileDescriptorProto]]]]] = {
    "go": ("gen", of_go),
    "rust": ("src/generated", of_rust),
    "typescript": ("src/gen", of_typescript),
}
"""By the folder below `clients`: where the stubs are in it, and what reads them."""


def contract(proto_root: Path = PROTO_ROOT) -> Described:
    """The contract's files as they are, by name. Raises ProtocError where protoc refuses one."""
    with tempfile.TemporaryDirectory(prefix="gymmesh-stubs-") as scratch:
        image = Path(scratch) / "contract.binpb"
        run_protoc(proto_root, [f"--descriptor_set_out={image}"], contract_files(proto_root))
        files = FileDescriptorSet.FromString(image.read_bytes()).file
    return {file.name: bare(file) for file in files}


def bare(file: FileDescriptorProto) -> FileDescriptorProto:
    """A copy without what some generators leave out: positions, imports, and the names in JSON."""
    copy = FileDescriptorProto()
    copy.CopyFrom(file)
    copy.ClearField("source_code_info")
    copy.ClearField("dependency")
    for field in copy.extension:
        field.ClearField("json_name")
    for message in copy.message_type:
        _clear_names(message)
    return copy


def _clear_names(message: DescriptorProto) -> None:
    for field in (*message.field, *message.extension):
        field.ClearField("json_name")
    for nested in message.nested_type:
        _clear_names(nested)


def stale(now: Described, committed: Described) -> list[str]:
    """The files of the contract that a client's stubs do not have as they are, sorted."""
    known = {name for name in committed if name.startswith("gymmesh/")}
    return sorted(name for name in {*now, *known} if now.get(name) != committed.get(name))


def main(clients: Path = ROOT / "clients") -> int:
    """Runs the script; returns its exit status: 0 all fresh, 1 some are stale or refused."""
    try:
        now = contract()
    except ProtocError as error:
        print(f"stubs of clients: {error}", file=sys.stderr)
        return 1
    status = 0
    for client, (folder, read) in CLIENTS.items():
        committed = {file.name: bare(file) for file in read(clients / client / folder)}
        if names := stale(now, committed):
            status = 1
            print(
                f"clients/{client}/{folder}: the stubs of {', '.join(names)} are out of date: run "
                f"`make proto LANGUAGES={client}`",
                file=sys.stderr,
            )
    return status


if __name__ == "__main__":
    sys.exit(main())
