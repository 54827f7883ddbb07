"""What a pending verdict says of a group that could not be judged. Pure."""

from __future__ import annotations

from typing import Final

_NOT_SCORED: Final = "the group could not be scored: "


def not_scored(error: object) -> str:
    """The reason of a pending verdict whose group could not be judged, because of `error`."""
    return f"{_NOT_SCORED}{error}"


def group_fault(reason: str) -> str:
    """Why the group of a verdict could not be judged, from its `reason`; empty if it was not so."""
    return reason.partition(_NOT_SCORED)[2]
