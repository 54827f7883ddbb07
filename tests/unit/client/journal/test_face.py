"""What other rooms import from the journal."""

from __future__ import annotations

from gymmesh_client import journal


def test_the_face_is_sorted_and_there() -> None:
    assert journal.__all__ == sorted(journal.__all__)
    assert all(hasattr(journal, name) for name in journal.__all__)
