"""Whether an answer's calendar is as it should be. Pure.

Invariant: whatever the model wrote is judged. An expected calendar that cannot be judged against
is a `TaskInvalid`, never a reward of 0.

The rule is that of NeMo Gym's calendar rows. The answer's first list of objects is the calendar.
It must have as many events (by `event_id`) as expected, no two of which overlap, and each
expected event must be there with its duration, within its `min_time` and `max_time`, and under
its constraint. An answer with `<think>` in it is wrong; where no event is expected, any other
answer is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from gymmesh_resource.errors import TaskInvalid

from .clock import read_time
from .listing import first_list


@dataclass(frozen=True, slots=True)
class WantedEvent:
    """What is asked of one event; all times in minutes after midnight.

    duration: minutes, compared as they are. earliest, latest: for its start and its end.
    exactly: its start, where it is fixed. understood: False for a constraint in words that the
    rule does not know, and therefore leaves out.
    """

    duration: Any
    earliest: int
    latest: int
    exactly: int | None = None
    understood: bool = True


@dataclass(frozen=True, slots=True)
class CalendarScore:
    """The reward, 1.0 or 0.0, and why: a word as in NeMo Gym (`pass`, `no_json_list`, …)."""

    reward: float
    reason: str


class _Malformed(Exception):
    """The answer's calendar has an event that cannot be read."""


def read_expected(state: Mapping[str, Any]) -> dict[str, WantedEvent]:
    """The expectations by event id, from a row's `exp_cal_state`. Raises `TaskInvalid`."""
    return {event_id: _expected(entry, event_id) for event_id, entry in state.items()}


def judge(answer: str, expected: Mapping[str, WantedEvent]) -> CalendarScore:
    """The verdict on the model's last message; an empty one is wrong."""
    if not answer:
        return CalendarScore(0.0, "no_answer")
    if "<think>" in answer:
        return CalendarScore(0.0, "think_found")
    if not expected:
        return CalendarScore(1.0, "pass")
    calendar = first_list(answer)
    if not calendar:
        return CalendarScore(0.0, "no_json_list")
    try:
        reason = _problem(calendar, expected)
    except (_Malformed, RecursionError, OverflowError, ValueError, TypeError):
        reason = "error_in_grading"  # events can be nested deeply, and numbers be huge
    return CalendarScore(float(reason is None), reason or "pass")


def _problem(calendar: Sequence[Any], expected: Mapping[str, WantedEvent]) -> str | None:
    events = {str(_field(event, "event_id")): event for event in calendar}
    if len(events) != len(expected):
        return "different_number_of_events"
    if _overlap(calendar):
        return "conflicting_events"
    for event_id, wanted in expected.items():
        if event_id not in events:
            raise _Malformed
        if not _satisfied(events[event_id], wanted):
            return "constraint_violated"
    return None


def _overlap(calendar: Sequence[Any]) -> bool:
    """Whether two events overlap; one that is written twice, word for word, counts once."""
    distinct: list[Any] = []
    for event in calendar:
        if event not in distinct:
            distinct.append(event)
    pairs = combinations(map(_span, distinct), 2)
    return any(
        not (end <= other_start or start >= other_end)
        for (start, end), (other_start, other_end) in pairs
    )


def _satisfied(event: Any, wanted: WantedEvent) -> bool:
    start, end = _span(event)
    if event["duration"] != wanted.duration:
        return False
    if start < wanted.earliest or end > wanted.latest:
        return False
    return wanted.exactly is None or start == wanted.exactly


def _span(event: Any) -> tuple[float, float]:
    """Start and end in minutes after midnight."""
    duration = _field(event, "duration")
    begins = _field(event, "start_time")
    if not isinstance(duration, int | float) or not isinstance(begins, str):
        raise _Malformed
    try:
        start = read_time(begins)
        return start, start + duration
    except (ValueError, OverflowError):
        raise _Malformed from None


def _field(event: Any, name: str) -> Any:
    if not isinstance(event, dict) or name not in event:
        raise _Malformed
    return event[name]


def _expected(entry: Any, event_id: str) -> WantedEvent:
    where = f"exp_cal_state.{event_id}"
    if not isinstance(entry, dict):
        raise TaskInvalid(where, "must be an object")
    duration = entry.get("duration")
    if isinstance(duration, bool) or not isinstance(duration, int | float):
        raise TaskInvalid(f"{where}.duration", "must be a number of minutes")
    if "constraint" not in entry:
        raise TaskInvalid(f"{where}.constraint", "is missing; null stands for none")
    earliest = _time(entry, "min_time", where)
    latest = _time(entry, "max_time", where)
    constraint = entry["constraint"]
    if constraint is None:
        return WantedEvent(duration, earliest, latest)
    if not isinstance(constraint, str):
        raise TaskInvalid(f"{where}.constraint", "must be text or null")
    word, _, rest = constraint.partition(" ")
    try:
        match word:
            case "before":
                return WantedEvent(duration, earliest, min(latest, read_time(rest)))
            case "after":
                return WantedEvent(duration, max(earliest, read_time(rest)), latest)
            case "at":
                return WantedEvent(duration, earliest, latest, read_time(rest))
            case "between":
                first, second = map(read_time, rest.split(" and "))
                return WantedEvent(duration, max(earliest, first), min(latest, second))
    except ValueError:
        raise TaskInvalid(f"{where}.constraint", "has a time that cannot be read") from None
    return WantedEvent(duration, earliest, latest, understood=False)


def _time(entry: Mapping[str, Any], key: str, where: str) -> int:
    value = entry.get(key)
    try:
        return read_time(value)  # type: ignore[arg-type]  # what is no text raises, too
    except (ValueError, TypeError):
        raise TaskInvalid(f"{where}.{key}", "must be a time such as 10:00") from None
