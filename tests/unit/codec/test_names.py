"""Names of tools that every endpoint takes."""

from __future__ import annotations

import pytest

from gymmesh_responses import is_tool_name, with_name_characters


@pytest.mark.parametrize("name", ["add", "Add_2-x", "_", "-", "a" * 64])
def test_names(name: str) -> None:
    assert is_tool_name(name)
    assert with_name_characters(name) == name


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("", "_"),
        ("a.b", "a_b"),
        ("a b\n", "a_b_"),
        ("größe", "gr__e"),
        ("a\ud800", "a_"),
        ("a" * 65, "a" * 65),
    ],
)
def test_what_is_none(name: str, written: str) -> None:
    assert not is_tool_name(name)
    assert with_name_characters(name) == written
