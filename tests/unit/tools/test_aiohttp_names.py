"""aiohttp is used by its public names: a version that changes its inside breaks nothing here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import aiohttp.web

ROOT = Path(__file__).resolve().parents[3]


def files() -> list[Path]:
    """Those of the product that import aiohttp."""
    paths = [
        path
        for room in ("services", "clients")
        for path in (ROOT / room).rglob("gymmesh_*/**/*.py")
    ]
    return [path for path in paths if "aiohttp" in path.read_text(encoding="utf-8")]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aiohttp"):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            yield from filter(is_private, names)


def private_attributes(tree: ast.AST) -> Iterator[str]:
    """Those that the file does not define itself."""
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    own = {node.attr for node in attributes if ast.unparse(node.value) in ("self", "cls")}
    own |= set(functions(tree))
    yield from (node.attr for node in attributes if is_private(node.attr) and node.attr not in own)


def functions(tree: ast.AST) -> Iterator[str]:
    kinds = (ast.AsyncFunctionDef, ast.FunctionDef)
    yield from (node.name for node in ast.walk(tree) if isinstance(node, kinds))


def overridden(tree: ast.AST) -> Iterator[str]:
    """Private names of aiohttp that a class derived from one of its own has, too."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        for base in node.bases:
            name = ast.unparse(base)
            if not name.startswith("aiohttp."):
                continue
            inherited = dir(eval(name, {"aiohttp": aiohttp}))  # noqa: S307  # a name of our own file
            own = {item.attr for item in ast.walk(node) if isinstance(item, ast.Attribute)}
            own |= set(functions(node))
            yield from (name for name in own & {*inherited} if is_private(name))


def test_no_private_name_of_aiohttp_is_used() -> None:
    found = {}
    for path in files():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = [*private_imports(tree), *private_attributes(tree), *overridden(tree)]
        if names:
            found[str(path.relative_to(ROOT))] = names
    assert len(files()) > 5
    assert not found


def test_each_way_of_using_one_is_seen() -> None:
    assert [*private_imports(ast.parse("from aiohttp.client import _Retry"))] == ["_Retry"]
    assert [*private_attributes(ast.parse("connector._conns; self._own"))] == ["_conns"]
    derived = "class C(aiohttp.TCPConnector):\n    async def _create_connection(self): ..."
    assert [*overridden(ast.parse(derived))] == ["_create_connection"]
