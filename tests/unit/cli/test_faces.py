from __future__ import annotations

from gymmesh_cli import terminal


def test_what_the_terminal_shows_is_sorted_and_there() -> None:
    assert terminal.__all__ == sorted(terminal.__all__)
    assert all(hasattr(terminal, name) for name in terminal.__all__)
