"""The name of a failure's boundary, for people, labels and counts."""

from __future__ import annotations

from typing import Final

from gymmesh.rollout.v1 import rollout_pb2

BOUNDARIES: Final[dict[int, str]] = {
    int(number): name.removeprefix("BOUNDARY_") for name, number in rollout_pb2.Boundary.items()
}
"""The names without their prefix, such as MODEL, by number."""


def boundary_name(number: int) -> str:
    """The boundary without its prefix; its number for one of a later contract."""
    return BOUNDARIES.get(number, str(number))
