"""The source files of an author's own environment, to notice when they change.

The class's own file counts, and the files beside it that it imports, directly or through one
another: modules of the same folder, and of folders below it. What a module imports is read from its
text, so that other environments of the folder do not count. Installed libraries do not.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from gymmesh_resource.environment import Environment
from gymmesh_resource.errors import FILE_MODULE

# Files of one environment; a folder with more is not hashed whole.
_MOST_FILES: Final = 1000
_OURS: Final = "gymmesh_"
_INSTALLED: Final = ("site-packages", "dist-packages")


def source_digest(kind: type[Environment[Any]]) -> bytes:
    """SHA-256 over the source files of a class, as they were when it was first asked for; empty for
    a class without a file, and for those that come with gymmesh.
    """
    return _digest(kind.__module__)


@cache
def _digest(name: str) -> bytes:
    if name.startswith(_OURS) and not name.startswith(FILE_MODULE):
        return b""
    place = getattr(sys.modules.get(name), "__file__", None)
    if not place or not Path(place).is_file():
        return b""
    file = Path(place).resolve()
    levels = 0 if name.startswith(FILE_MODULE) else name.count(".") + (file.stem == "__init__")
    root = file.parents[max(0, levels - 1)]
    package = root.name if levels else ""
    digest = hashlib.sha256()
    for one in _files(file, root, package):
        # The name within the folder, so that a copy elsewhere has the same digest.
        digest.update(str(one.relative_to(root)).encode() + b"\0")
        digest.update(hashlib.sha256(one.read_bytes()).digest())
    return digest.digest()


def _files(first: Path, root: Path, package: str) -> list[Path]:
    """The file, and those that it imports from the root; `package`: the root's name as modules use
    it, where it is a package.
    """
    found, waiting = {first}, [first]
    if root.name in _INSTALLED:  # what lies beside such a module is not its own
        return [first]
    while waiting and len(found) < _MOST_FILES:
        for one in _imported(waiting.pop(), root, package):
            if one not in found and one.is_relative_to(root):
                found.add(one)
                waiting.append(one)
    return sorted(found)


def _imported(file: Path, root: Path, package: str) -> Iterator[Path]:
    """The files below the root that a file imports."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield from _modules(root, _within(name.name, package))
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            base = root if not node.level else file.parents[node.level - 1]
            inner = module if node.level else _within(module, package)
            for name in node.names:
                yield from _modules(base, f"{inner}.{name.name}".strip("."))


def _within(name: str, package: str) -> str:
    """A dotted name as seen from the root."""
    if not package:
        return name
    return name.removeprefix(f"{package}.") if name != package else ""


def _modules(base: Path, name: str) -> Iterator[Path]:
    """The files of a dotted name, those of its packages included, as far as they are there."""
    place = base
    for part in filter(None, name.split(".")):
        place /= part
        for one in (place / "__init__.py", place.parent / f"{part}.py"):
            if one.is_file():
                yield one.resolve()
