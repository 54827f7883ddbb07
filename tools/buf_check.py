"""Lints the contract, and compares it with the last release's.

    python tools/buf_check.py lint             buf lint: STANDARD and COMMENTS
    python tools/buf_check.py breaking         buf breaking: FILE, against proto/releases/
    python tools/buf_check.py release-image    write the descriptor image of a release

buf gets a descriptor image from protoc instead of the folder, because it would look up the google
imports in a schema registry. A release's image is committed as proto/releases/v1.binpb and
replaced by the next one. The buf binary comes with the `dev` extra (buf-bin).
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.protos import PROTO_ROOT, ROOT, ProtocError, contract_files, run_protoc

RELEASE_IMAGE = PROTO_ROOT / "releases" / "v1.binpb"
BUF_SECONDS = 120


def write_image(proto_root: Path, image: Path, *, comments: bool) -> None:
    """Writes the contract and all it imports as a FileDescriptorSet to the file `image`.

    With `comments` it holds source positions and comments too, which lint reads and a release's
    image doesn't need.

    Raises:
        ProtocError: protoc refused a file.
    """
    flags = ["--include_imports", f"--descriptor_set_out={image}"]
    if comments:
        flags.append("--include_source_info")
    run_protoc(proto_root, flags, contract_files(proto_root))


def buf(*arguments: str) -> int:
    """Runs buf with `arguments` in the repository's root; returns its exit status."""
    beside = Path(sys.executable).parent / "buf"
    command = str(beside) if beside.exists() else shutil.which("buf")
    if command is None:
        print("buf was not found: `make setup` installs it (package buf-bin)", file=sys.stderr)
        return 1
    run = subprocess.run([command, *arguments], cwd=ROOT, timeout=BUF_SECONDS, check=False)
    return run.returncode


def lint(image: Path) -> int:
    """Lints our files of `image`; the imported ones are others' business."""
    return buf("lint", str(image), "--config", "buf.yaml", "--path", "gymmesh")


def breaking(image: Path, release: Path) -> int:
    """Compares `image` with the image of the last release."""
    if not release.exists():
        print("*" * 78)
        print(f"*** NO RELEASE YET: {release.name} does not exist, so nothing is compared.")
        print(
            "*** Until `make release-image` writes this file, every change of the contract passes."
        )
        print("*" * 78)
        return 0
    against = ("--against", str(release), "--exclude-imports")
    return buf("breaking", str(image), "--config", "buf.yaml", *against)


def main(argv: list[str] | None = None) -> int:
    """Runs the script; returns its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["lint", "breaking", "release-image"])
    parser.add_argument("--proto-root", type=Path, default=PROTO_ROOT)
    parser.add_argument("--release", type=Path, default=RELEASE_IMAGE)
    options = parser.parse_args(argv)
    try:
        if options.what == "release-image":
            options.release.parent.mkdir(parents=True, exist_ok=True)
            write_image(options.proto_root, options.release, comments=False)
            print(f"wrote {options.release}")
            return 0
        with tempfile.TemporaryDirectory(prefix="gymmesh-image-") as scratch:
            image = Path(scratch) / "image.binpb"
            write_image(options.proto_root, image, comments=True)
            if options.what == "lint":
                return lint(image)
            return breaking(image, options.release)
    except ProtocError as error:
        print(f"buf_check: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
