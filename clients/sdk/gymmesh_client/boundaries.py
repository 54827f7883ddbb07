"""The names of enums' values, without their prefix: for rows, people, labels and counts."""

from __future__ import annotations

from typing import Final

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_rows import EnumNames

BOUNDARIES: Final = EnumNames(rollout_pb2.Boundary, "BOUNDARY_")
"""The boundaries of failures, such as MODEL, by number."""
BOUNDARY_NUMBERS: Final = {name: number for number, name in BOUNDARIES.items()}


def boundary_name(number: int) -> str:
    """The boundary without its prefix; its number for one of a later contract."""
    return BOUNDARIES[number]


def boundary_number(name: str | None) -> int:
    """The boundary that `boundary_name` names; 0 for none."""
    if not name:
        return 0
    return BOUNDARY_NUMBERS.get(name) or (int(name) if name.isdecimal() else 0)
