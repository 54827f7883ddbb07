"""The public faces of the runtime's rooms, and the size of its root."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

import gymmesh_runtime

_ROOT = Path(gymmesh_runtime.__file__).parent


@pytest.mark.parametrize(
    "room", ["addresses", "config", "processes", "security", "serving", "telemetry", "text"]
)
def test_a_face_names_what_it_has_in_order(room: str) -> None:
    face = import_module(f"gymmesh_runtime.{room}")
    names = face.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert all(hasattr(face, name) for name in names)


def test_the_root_holds_a_dozen_files_at_most() -> None:
    assert len(list(_ROOT.glob("*.py"))) <= 12
