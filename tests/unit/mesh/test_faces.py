from __future__ import annotations

from pathlib import Path

import gymmesh_mesh


def test_the_public_names_are_sorted_and_there() -> None:
    names = gymmesh_mesh.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert all(hasattr(gymmesh_mesh, name) for name in names)


def test_the_root_holds_a_dozen_files_at_most() -> None:
    root = Path(gymmesh_mesh.__file__).parent
    assert len(list(root.glob("*.py"))) <= 12
