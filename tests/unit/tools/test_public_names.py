"""The names that people import: `from gymmesh import Environment, Agent, …`."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import gymmesh

PACKAGE = Path(gymmesh.__file__).parent
# What every name of every room needs somewhere, but `import gymmesh` and the stubs do not.
ROOMS = {path.stem for path in Path(__file__).resolve().parents[3].glob("*/*/gymmesh_*/")}


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh interpreter imports for `code`, and not without it."""
    shown = f"import sys; before = set(sys.modules)\n{code}\nprint(*set(sys.modules) - before)"
    out = subprocess.run(
        [sys.executable, "-c", shown], capture_output=True, text=True, timeout=300, check=True
    )
    return set(out.stdout.split())


def test_importing_gymmesh_imports_nothing_else() -> None:
    assert loaded_by("import gymmesh") == {"gymmesh"}


def test_the_stubs_import_no_room() -> None:
    stubs = sorted(
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for path in PACKAGE.rglob("*_pb2*.py")
    )
    tops = {name.partition(".")[0] for name in loaded_by(f"import {', '.join(stubs)}")}
    assert len(stubs) > len(ROOMS)
    assert {"gymmesh", "grpc"} <= tops
    assert not tops & {*ROOMS, "aiohttp", "click", "yaml"}


def test_a_name_imports_its_own_room_alone() -> None:
    tops = {name.partition(".")[0] for name in loaded_by("from gymmesh import Environment, tool")}
    assert "gymmesh_resource" in tops
    assert not tops & {"gymmesh_agent", "gymmesh_client", "gymmesh_mesh", "gymmesh_model", "click"}


def test_every_name_is_there_and_is_what_a_type_checker_sees() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    (typed,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and not node.orelse and isinstance(node.test, ast.Name)
    )
    seen = {
        name.name: line.module
        for line in typed.body
        if isinstance(line, ast.ImportFrom)
        for name in line.names
    }
    assert seen == gymmesh._HOME  # type: ignore[attr-defined]  # unknown to type checkers
    assert sorted(seen) == sorted(gymmesh.__all__)
    for name, home in seen.items():
        assert getattr(gymmesh, name) is getattr(import_module(str(home)), name)


def test_the_names_are_sorted_and_hide_no_package_of_stubs() -> None:
    # Classes first, then functions, as the linter sorts __all__.
    assert gymmesh.__all__ == sorted(gymmesh.__all__, key=lambda name: (name[0].islower(), name))
    assert {"Agent", "Collector", "Environment", "Task", "Verdict", "tool"} <= {*gymmesh.__all__}
    assert set(gymmesh.__all__) <= set(dir(gymmesh))
    packages = {path.parent.parent.name for path in PACKAGE.glob("*/v1/__init__.py")}
    assert {"agent", "rollout"} <= packages
    assert not packages & {*gymmesh.__all__}


def test_a_name_that_is_not_there_is_said_as_python_does() -> None:
    with pytest.raises(AttributeError, match="module 'gymmesh' has no attribute 'Envronment'"):
        _ = gymmesh.Envronment  # type: ignore[attr-defined]  # the point of the test
