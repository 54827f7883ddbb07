"""The name of a failure's boundary, for people, labels and counts."""

from __future__ import annotations

from gymmesh.rollout.v1 import rollout_pb2


def boundary_name(number: int) -> str | None:
    """The boundary without its prefix, such as MODEL; None for one of a later contract."""
    value = rollout_pb2.Boundary.DESCRIPTOR.values_by_number.get(number)
    return None if value is None else value.name.removeprefix("BOUNDARY_")
