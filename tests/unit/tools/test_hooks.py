"""An optional hook is a method of a base class that does nothing, never a name looked up."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
#: What serves and composes services: all that it calls, `Service` declares.
PLACES = sorted(
    [
        ROOT / "services/runtime/gymmesh_runtime/serve.py",
        *(ROOT / "services/runtime/gymmesh_runtime/serving").glob("*.py"),
        *(ROOT / "clients/mesh/gymmesh_mesh").rglob("*.py"),
    ]
)
#: Objects of others, whose attributes vary with the system or with the library's version.
FOREIGN = {"os", "awaited", "library", "module"}


def looked_up(source: str) -> list[str]:
    """The attributes that a module takes by `getattr` with a default, of objects of its own."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [
        ast.unparse(call)
        for call in calls
        if isinstance(call.func, ast.Name)
        and ((call.func.id == "getattr" and len(call.args) == 3) or call.func.id == "hasattr")
        and ast.unparse(call.args[0]) not in FOREIGN
    ]


@pytest.mark.parametrize("path", PLACES, ids=lambda path: path.stem)
def test_no_hook_is_looked_up_by_its_name(path: Path) -> None:
    assert looked_up(path.read_text(encoding="utf-8")) == []


def test_what_counts_as_a_look_up() -> None:
    source = "getattr(service, 'drain', None); hasattr(service, 'x'); getattr(peer, name)"
    assert looked_up(source) == ["getattr(service, 'drain', None)", "hasattr(service, 'x')"]
