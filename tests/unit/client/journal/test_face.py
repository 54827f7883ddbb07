"""What other rooms import from those that keep a run on disk."""

from __future__ import annotations

from types import ModuleType

import pytest

from gymmesh_client import index, journal, log, row_files


@pytest.mark.parametrize("room", [index, journal, log, row_files], ids=lambda room: room.__name__)
def test_the_face_is_sorted_and_there(room: ModuleType) -> None:
    # Constants, classes, functions: the linter's order.
    names: list[str] = room.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert all(hasattr(room, name) for name in names)
