"""The public faces of the model service's rooms."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

import gymmesh_model

ROOMS = sorted(
    path.parent.name for path in Path(gymmesh_model.__file__).parent.glob("*/__init__.py")
)


@pytest.mark.parametrize("room", ROOMS)
def test_a_face_names_what_it_has_in_order(room: str) -> None:
    face = import_module(f"gymmesh_model.{room}")
    names = face.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert all(hasattr(face, name) for name in names)


def test_the_root_holds_a_dozen_files_at_most() -> None:
    root = Path(gymmesh_model.__file__).parent
    assert len(list(root.glob("*.py"))) <= 12
