from __future__ import annotations

from pathlib import Path

import gymmesh_view


def test_the_public_names_are_sorted_and_there() -> None:
    names = gymmesh_view.__all__
    assert names == sorted(names)
    assert all(hasattr(gymmesh_view, name) for name in names)


def test_the_root_holds_a_dozen_files_at_most() -> None:
    root = Path(gymmesh_view.__file__).parent
    assert len(list(root.glob("*.py"))) <= 12
