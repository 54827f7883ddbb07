"""The public faces: sorted, and true."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import gymmesh_trainers


@pytest.mark.parametrize(
    "name",
    [
        "gymmesh_trainers",
        "gymmesh_trainers.hooks",
        "gymmesh_trainers.rollouts",
        "gymmesh_trainers.trl",
        "gymmesh_trainers.weights",
    ],
)
def test_a_face_is_sorted_and_there(name: str) -> None:
    face = importlib.import_module(name)
    names = face.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert all(hasattr(face, one) for one in names)


def test_the_root_holds_a_dozen_files_at_most() -> None:
    root = Path(gymmesh_trainers.__file__).parent
    assert len(list(root.glob("*.py"))) <= 12
