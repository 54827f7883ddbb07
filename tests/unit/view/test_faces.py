from __future__ import annotations

import gymmesh_view


def test_the_public_names_are_sorted_and_there() -> None:
    names = gymmesh_view.__all__
    assert names == sorted(names)
    assert all(hasattr(gymmesh_view, name) for name in names)
