"""The public faces: sorted, and true."""

from __future__ import annotations

import importlib

import pytest


@pytest.mark.parametrize(
    "name", ["gymmesh_data", "gymmesh_data.exports", "gymmesh_data.reverify", "gymmesh_data.track"]
)
def test_a_face_is_sorted_and_there(name: str) -> None:
    face = importlib.import_module(name)
    names = face.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert all(hasattr(face, one) for one in names)


def test_the_command_has_every_format() -> None:
    from gymmesh_cli.stored import export
    from gymmesh_data import FORMATS

    assert [*FORMATS, "hf"] == list(export._FORMATS)
