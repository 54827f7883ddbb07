"""The digest over an environment's own source files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from gymmesh_resource import Environment
from gymmesh_resource.registry import environment_class, source_digest

DESK = '''
from gymmesh_resource import Environment

class Desk(Environment):
    """A desk."""
    def verify(self, session, rollout):
        import prices
        return prices.worth()
'''


def write(folder: Path, **files: str) -> type[Environment[Any]]:
    """The class `Desk` of desk.py in a new folder."""
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return environment_class(f"{folder / 'desk.py'}:Desk")


def test_a_file_and_the_modules_beside_it_that_it_imports_count(tmp_path: Path) -> None:
    prices = "from rates import RATE\n\ndef worth():\n    return RATE\n"
    files = {"desk": DESK, "prices": prices, "rates": "RATE = 1.0\n", "other": "X = 1\n"}
    first = source_digest(write(tmp_path / "first", **files))
    assert len(first) == 32
    # A copy elsewhere has the same; a module that nobody imports does not count.
    assert source_digest(write(tmp_path / "copy", **files | {"other": "X = 2\n"})) == first
    for place, changed in enumerate(("desk", "prices", "rates")):
        edited = files | {changed: files[changed] + "# edited\n"}
        assert source_digest(write(tmp_path / f"edited-{place}", **edited)) != first


def test_a_package_counts_by_what_its_class_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for number, rate in enumerate((1.0, 1.0, 0.5)):
        package = tmp_path / f"shop{number}"
        (package / "inner").mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "inner" / "__init__.py").write_text("")
        (package / "inner" / "rates.py").write_text(f"RATE = {rate}\n")
        (package / "desk.py").write_text(
            DESK.replace("import prices", "from .inner import rates").replace("prices.worth()", "1")
        )
        found.append(source_digest(environment_class(f"shop{number}.desk:Desk")))
        for name in [one for one in sys.modules if one.startswith(f"shop{number}")]:
            monkeypatch.delitem(sys.modules, name)
    assert found[0] == found[1] != found[2]


def test_an_environment_that_comes_with_gymmesh_has_none() -> None:
    assert source_digest(environment_class("math")) == b""
