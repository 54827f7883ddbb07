"""Imports that go around a room's face are found, and modules say themselves that they differ."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

from tools.import_faces import FacesContract

FILES = {
    "__init__.py": "",
    "room/__init__.py": "from gymmesh_walls.room.inner import name\n__all__ = ['name']\n",
    "room/inner.py": "name = other = 1\n",
    "room/heavy.py": "IS_FACE = True\nheavy = 1\n",
    "kinds/__init__.py": "MEMBERS_ARE_ROOMS = True\n",
    "kinds/one.py": "one = 1\n",
    "user.py": (
        "from gymmesh_walls.room import name\n"
        "from gymmesh_walls.room.heavy import heavy\n"
        "from gymmesh_walls.kinds.one import one\n"
        "from gymmesh_walls.room.inner import other\n"
    ),
}


@pytest.fixture
def walls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, text in FILES.items():
        path = tmp_path / "gymmesh_walls" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [one for one in sys.modules if one.startswith("gymmesh_walls")]:
        del sys.modules[name]


def test_what_goes_around_a_face_is_found(walls: None) -> None:
    graph = grimp.build_graph("gymmesh_walls", cache_dir=None)
    contract = FacesContract(
        name="faces", session_options={"root_packages": ["gymmesh_walls"]}, contract_options={}
    )
    found = contract.check(graph, verbose=False).metadata["found"]
    assert [(one["importer"], one["imported"]) for one in found] == [
        ("gymmesh_walls.user", "gymmesh_walls.room.inner")
    ]
