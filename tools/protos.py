"""Where the contract lies, and how protoc is called on it.

Shared by the stub generator and by the buf check, so that both see the same files through the
same include path. Needs the `dev` extra (grpcio-tools).

    python tools/protos.py    put the google files that the contract imports into .cache/googleapis
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import google.api.field_behavior_pb2
import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTO_ROOT = ROOT / "proto"
#: What the contract imports besides protobuf's own files.
GOOGLE_FILES = (
    "google/api/field_behavior.proto",
    "google/rpc/code.proto",
    "google/rpc/error_details.proto",
    "google/rpc/status.proto",
)


class ProtocError(Exception):
    """protoc refused the contract; what it had to say is on stderr already."""


def contract_files(proto_root: Path) -> list[str]:
    """Lists the contract's files relative to `proto_root`, sorted.

    Raises:
        ProtocError: there is not a single .proto file under `proto_root`/gymmesh.
    """
    found = sorted(
        path.relative_to(proto_root).as_posix()
        for path in (proto_root / "gymmesh").glob("**/*.proto")
    )
    if not found:
        raise ProtocError(f"no .proto file under {proto_root / 'gymmesh'}")
    return found


def include_dirs(proto_root: Path) -> list[Path]:
    """Lists the folders imports are looked up in: ours, google/api and google/rpc, protobuf's own.

    All of them are on disk (googleapis-common-protos and grpcio-tools ship theirs), so that
    nothing is ever fetched.
    """
    # google.api is a namespace package: three levels above the module is the folder that holds it.
    common = Path(google.api.field_behavior_pb2.__file__).resolve().parents[2]
    well_known = Path(grpc_tools.__file__).resolve().parent / "_proto"
    return [proto_root, common, well_known]


def export_google(target: Path) -> None:
    """Copies what the contract imports of google/api and google/rpc into the folder `target`."""
    common = include_dirs(PROTO_ROOT)[1]
    for name in GOOGLE_FILES:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes((common / name).read_bytes())


def run_protoc(proto_root: Path, arguments: Sequence[str], files: Sequence[str]) -> None:
    """Runs protoc inside this process.

    Raises:
        ProtocError: protoc exited with another status than 0.
    """
    includes = [f"-I{folder}" for folder in include_dirs(proto_root)]
    status = protoc.main(["protoc", *includes, *arguments, *files])
    if status != 0:
        raise ProtocError(f"protoc exited with {status}")


def plugin(name: str) -> str:
    """Gives protoc's flag for the plugin `name` of this virtual environment, PATH left aside."""
    suffix = ".exe" if sys.platform == "win32" else ""
    return f"--plugin={name}={Path(sys.executable).parent / (name + suffix)}"


if __name__ == "__main__":
    export_google(ROOT / ".cache" / "googleapis")
