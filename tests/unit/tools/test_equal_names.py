"""A name stands for one thing: no two files define classes, or public type aliases, of one name."""

from __future__ import annotations

import ast
import importlib.util
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
#: Names that more than one file may define, and why.
EQUAL = {
    "EventSink": "takes a rollout's events: in an agent one may be awaited, in a collector not",
    "Rollout": "public in both: what a verifier judges, and what a trainer gets",
    "SandboxSpec": "of an author what is asked for, of a backend what is to be made",
}
#: The stubs have the contract's names, and the suites those of the other side of a wire.
ELSEWHERE = {"gymmesh", "gymmesh_conformance"}
#: What is made of the contract has its names, too.
GENERATED = {"proto/python/gymmesh_rows/columns.py"}


def files() -> Iterator[Path]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for package in project["tool"]["importlinter"]["root_packages"]:
        if package not in ELSEWHERE:
            found = importlib.util.find_spec(package)
            assert found is not None
            assert found.origin is not None
            for file in sorted(Path(found.origin).parent.rglob("*.py")):
                if file.relative_to(ROOT).as_posix() not in GENERATED:
                    yield file


def definitions(source: str, place: str) -> Iterator[tuple[str, str]]:
    """The names that a module defines, and what each stands for.

    A class stands for itself. A public alias stands for its text, so that files which shorten the
    same name in the same way agree; a private one matters to its own file alone.
    """
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            yield node.name, f"{place}:{node.lineno}"
            continue
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        if isinstance(target, ast.Name) and _is_alias(target.id):
            text = str(value.value) if isinstance(value, ast.Constant) else ast.unparse(value)
            yield target.id, f"= {text}"


def _is_alias(name: str) -> bool:
    """Whether a name is one of a public type, such as `RowFile`: no constant, no type variable."""
    is_type = name[0].isupper() and any(letter.islower() for letter in name)
    return is_type and not (len(name) <= 2 or name.endswith("T"))


def shared(modules: dict[str, str]) -> dict[str, set[str]]:
    """The names that stand for more than one thing, with these things."""
    meanings: dict[str, set[str]] = defaultdict(set)
    for place, source in modules.items():
        for name, meaning in definitions(source, place):
            meanings[name].add(meaning)
    return {name: found for name, found in meanings.items() if len(found) > 1}


def test_no_two_classes_have_one_name() -> None:
    modules = {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files()}
    assert len(modules) > 500
    found = shared(modules)
    new = {name: sorted(places) for name, places in found.items() if name not in EQUAL}
    assert not new, "call one of each by what it is, or say in EQUAL why they are the same"
    assert set(found) == set(EQUAL), "EQUAL lists names that only one file defines"


def test_equal_names_are_found() -> None:
    modules = {
        "a.py": "class Call: ...\nRow = dict[str, int]\nInstance = pb.Instance\nT = 1\n_Key = 1",
        "b.py": "class Call: ...\nRow: TypeAlias = 'list[int]'\nInstance = pb.Instance\nT = 2",
        "c.py": "class Row: ...\n_Key = 2",
    }
    assert shared(modules) == {
        "Call": {"a.py:1", "b.py:1"},
        "Row": {"= dict[str, int]", "= list[int]", "c.py:1"},
    }
