"""The public face of the agent service."""

from __future__ import annotations

import pytest

import gymmesh_agent


def test_the_face_names_what_it_has_in_order() -> None:
    assert gymmesh_agent.__all__ == sorted(gymmesh_agent.__all__)
    for name in gymmesh_agent.__all__:
        assert getattr(gymmesh_agent, name).__name__ in (name, "RolloutContext")
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        gymmesh_agent.Nothing  # noqa: B018  # the access is what is tested
