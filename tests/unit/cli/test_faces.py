from __future__ import annotations

from pathlib import Path

import gymmesh_cli
from gymmesh_cli import terminal


def test_what_the_terminal_shows_is_sorted_and_there() -> None:
    # Constants, classes, functions: the linter's order.
    names = terminal.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert all(hasattr(terminal, name) for name in terminal.__all__)


def test_the_root_holds_a_dozen_files_at_most() -> None:
    root = Path(gymmesh_cli.__file__).parent
    assert len(list(root.glob("*.py"))) <= 12
