"""Builds a calendar that meets all expectations of a row. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymmesh_resource.environments.calendar.verdict import WantedEvent

_STEP = 5  # minutes
_EVENTS = 10  # more are not tried


def arranged(expected: Mapping[str, WantedEvent]) -> list[dict[str, Any]]:
    """Events that meet all constraints and do not overlap; empty if no such events were found."""
    if len(expected) > _EVENTS:
        return []
    # The least freedom first, so that the search ends soon.
    order = sorted(expected, key=lambda name: len(_starts(expected[name])))
    starts = _placed(order, expected, {})
    return [
        {
            "event_id": int(name) if name.isdecimal() else name,
            "event_name": f"Event {name}",
            "start_time": f"{start // 60:02}:{start % 60:02}",
            "duration": expected[name].duration,
        }
        for name, start in sorted(starts.items())
    ]


def _starts(wanted: WantedEvent) -> list[int]:
    if wanted.exactly is not None:
        return [wanted.exactly]
    last = int(wanted.latest - wanted.duration)
    return list(range(wanted.earliest, last + 1, _STEP))


def _placed(
    order: list[str], expected: Mapping[str, WantedEvent], taken: dict[str, int]
) -> dict[str, int]:
    """The start of each event, by backtracking."""
    if not order:
        return taken
    name = order[0]
    length = expected[name].duration
    for start in _starts(expected[name]):
        free = all(
            start + length <= other or other + expected[one].duration <= start
            for one, other in taken.items()
        )
        if free and (found := _placed(order[1:], expected, {**taken, name: start})):
            return found
    return {}
