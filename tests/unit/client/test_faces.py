"""The public faces of the client: sorted, and every name is there."""

from __future__ import annotations

import importlib

import pytest


@pytest.mark.parametrize(
    "package",
    [
        "gymmesh_client",
        "gymmesh_client.collect",
        "gymmesh_client.control",
        "gymmesh_client.dispatch",
        "gymmesh_client.groups",
        "gymmesh_client.run_file",
        "gymmesh_client.tasks",
    ],
)
def test_a_face_is_sorted_and_whole(package: str) -> None:
    face = importlib.import_module(package)
    assert face.__all__ == sorted(face.__all__)
    for name in face.__all__:
        assert getattr(face, name) is not None
