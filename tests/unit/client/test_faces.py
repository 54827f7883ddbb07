"""The public faces of the client: sorted, and every name is there."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import gymmesh_client


@pytest.mark.parametrize(
    "package",
    [
        "gymmesh_client",
        "gymmesh_client.collector",
        "gymmesh_client.collect_stream",
        "gymmesh_client.control",
        "gymmesh_client.dispatch",
        "gymmesh_client.groups",
        "gymmesh_client.output",
        "gymmesh_client.rollout",
        "gymmesh_client.rows",
        "gymmesh_client.run_file",
        "gymmesh_client.tasks",
        "gymmesh_client.traces",
    ],
)
def test_a_face_is_sorted_and_whole(package: str) -> None:
    face = importlib.import_module(package)
    names = face.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name))
    for name in names:
        assert getattr(face, name) is not None


def test_the_root_holds_a_dozen_files_at_most() -> None:
    root = Path(gymmesh_client.__file__).parent
    assert len(list(root.glob("*.py"))) <= 12
