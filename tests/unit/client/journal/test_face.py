"""What other rooms import from the journal."""

from __future__ import annotations

from gymmesh_client import journal


def test_the_face_is_sorted_and_there() -> None:
    # Constants, classes, functions: the linter's order.
    names = journal.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert all(hasattr(journal, name) for name in journal.__all__)
