"""Generates the Python stubs: proto/gymmesh/**/*.proto -> proto/python/gymmesh/.

    python tools/generate.py            write them
    python tools/generate.py --check    fail, with a diff, when the committed ones are stale

The folder proto/python/gymmesh belongs to this script, but for its own __init__.py, which is
written by hand (the names that people import). Any other file that the contract no longer produces
is removed. Messages and gRPC stubs are typed (.pyi); proto path equals import
path, so that nothing needs to be edited afterwards.
"""

from __future__ import annotations

import argparse
import difflib
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.protos import PROTO_ROOT, ProtocError, contract_files, plugin, run_protoc

INIT = '"""Generated from the contract under proto/gymmesh. Do not edit."""\n'
DIFF_LINES = 200


def generate(proto_root: Path, out: Path) -> None:
    """Writes the package `gymmesh` with its stubs into the folder `out`.

    Raises:
        ProtocError: protoc refused a file.
    """
    arguments = [
        plugin("protoc-gen-mypy"),
        plugin("protoc-gen-mypy_grpc"),
        f"--python_out={out}",
        f"--grpc_python_out={out}",
        f"--mypy_out=quiet:{out}",
        f"--mypy_grpc_out=quiet:{out}",
    ]
    run_protoc(proto_root, arguments, contract_files(proto_root))
    package = out / "gymmesh"
    _drop_empty_grpc_stubs(package)
    # Regular packages rather than namespaces: hatch ships them, and mypy and import-linter find
    # them, without a setting of their own.
    folders = [package, *(path for path in package.rglob("*") if path.is_dir())]
    for folder in folders:
        (folder / "__init__.py").write_text(INIT, encoding="utf-8")
    (package / "py.typed").write_text("", encoding="utf-8")


def _drop_empty_grpc_stubs(package: Path) -> None:
    """Removes the *_pb2_grpc files of protos without a service; they'd hold no name at all."""
    for stub in package.rglob("*_pb2_grpc.py"):
        if "Stub" not in stub.read_text(encoding="utf-8"):
            stub.unlink()
            stub.with_suffix(".pyi").unlink(missing_ok=True)


def tree(folder: Path) -> dict[str, str]:
    """Reads every generated file under `folder`: relative path -> text."""
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def difference(committed: dict[str, str], fresh: dict[str, str]) -> list[str]:
    """Gives a unified diff from the committed tree to the fresh one; empty when they agree."""
    lines: list[str] = []
    for name in sorted(committed.keys() | fresh.keys()):
        old, new = committed.get(name), fresh.get(name)
        if old == new:
            continue
        lines += difflib.unified_diff(
            (old or "").splitlines(),
            (new or "").splitlines(),
            f"committed/{name}" if old is not None else "/dev/null",
            f"fresh/{name}" if new is not None else "/dev/null",
            lineterm="",
        )
        if not old or not new:  # an empty file has no line that could differ
            lines.append(f"only {'committed' if new is None else 'fresh'}: {name}")
    return lines


def write(fresh_root: Path, target: Path) -> None:
    """Makes `target` equal to `fresh_root`, touching only the files that differ."""
    fresh = tree(fresh_root)
    existing = tree(target) if target.exists() else {}
    for name in existing.keys() - fresh.keys():
        (target / name).unlink()
    for name, text in fresh.items():
        if existing.get(name) != text:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_text(text, encoding="utf-8")
    for folder in sorted(target.rglob("*"), reverse=True):
        if folder.is_dir() and folder.name == "__pycache__":
            shutil.rmtree(folder)
        elif folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def main(argv: list[str] | None = None) -> int:
    """Runs the script; returns its exit status (0 done, 1 stale or refused by protoc)."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare only, write nothing")
    parser.add_argument("--proto-root", type=Path, default=PROTO_ROOT)
    parser.add_argument("--out", type=Path, help="default: PROTO_ROOT/python")
    options = parser.parse_args(argv)
    target = (options.out or options.proto_root / "python") / "gymmesh"
    with tempfile.TemporaryDirectory(prefix="gymmesh-stubs-") as scratch:
        try:
            generate(options.proto_root, Path(scratch))
        except ProtocError as error:
            print(f"generate: {error}", file=sys.stderr)
            return 1
        fresh_root = Path(scratch) / "gymmesh"
        by_hand = target / "__init__.py"
        if by_hand.exists():
            shutil.copy(by_hand, fresh_root)
        if not options.check:
            write(fresh_root, target)
            return 0
        lines = difference(tree(target) if target.exists() else {}, tree(fresh_root))
    if not lines:
        return 0
    print("\n".join(lines[:DIFF_LINES]))
    if len(lines) > DIFF_LINES:
        print(f"… and {len(lines) - DIFF_LINES} more lines")
    print("generate: the committed stubs are out of date: run `make proto`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
