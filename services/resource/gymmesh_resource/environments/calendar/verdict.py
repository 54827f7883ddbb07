"""Whether an answer's calendar is as it should be. Pure.

Invariant: whatever the model wrote is judged. An expected calendar that cannot be judged against
is a `TaskInvalid`, never a reward of 0.

The answer's last list of objects is the calendar. The calendar must have as many events as
expected, each `event_id` once, and no two events may overlap. Each expected event must have its
duration, be within its `min_time` and `max_time`, and meet its constraint. If no event is expected,
an answer without a calendar or with an empty one is right. `CalendarReading` has the differences of
NeMo Gym's own rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from gymmesh_resource.environments.calendar.clock import read_clock, read_time
from gymmesh_resource.environments.calendar.listing import first_list, last_list
from gymmesh_resource.errors import TaskInvalid


@dataclass(frozen=True, slots=True)
class WantedEvent:
    """The constraints on one event; all times in minutes after midnight.

    duration: minutes, compared exactly. earliest: of the start. latest: of the end. exactly: the
    start, if it is fixed. understood: False for a constraint that the rule does not know and
    therefore ignores.
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


@dataclass(frozen=True, slots=True)
class CalendarReading:
    """How calendars are read.

    time: reads a time of day. is_nemo: NeMo Gym's own rule: the first list counts, an event may
    occur twice, `<think>` is wrong, and any answer is right if no event is expected.
    """

    time: Callable[[str], int]
    is_nemo: bool


RIGHT: Final = CalendarReading(read_clock, is_nemo=False)
NEMO: Final = CalendarReading(read_time, is_nemo=True)


_NUMBER: Final = "different_number_of_events"


class _Malformed(Exception):
    """The answer's calendar has an event that cannot be read."""


def read_expected(
    state: Mapping[str, Any], reading: CalendarReading = RIGHT
) -> dict[str, WantedEvent]:
    """The expectations by event id, from a row's `exp_cal_state`. Raises `TaskInvalid`, also for an
    unknown constraint, except under NeMo Gym's rule, which ignores it.
    """
    return {event_id: _expected(entry, event_id, reading) for event_id, entry in state.items()}


def judge(
    answer: str, expected: Mapping[str, WantedEvent], reading: CalendarReading = RIGHT
) -> CalendarScore:
    """The verdict on the model's last message; an empty one is wrong."""
    if not answer.strip():
        return CalendarScore(0.0, "no_answer")
    if reading.is_nemo:
        if "<think>" in answer:
            return CalendarScore(0.0, "think_found")
        if not expected:
            return CalendarScore(1.0, "pass")
        calendar = first_list(answer)
    else:
        calendar = last_list(answer.rpartition("</think>")[2].partition("<think>")[0])
        if not expected:
            nothing = not calendar
            return CalendarScore(float(nothing), "pass" if nothing else _NUMBER)
    if not calendar:
        return CalendarScore(0.0, "no_json_list")
    try:
        reason = _problem(calendar, expected, reading)
    except (_Malformed, RecursionError, OverflowError, ValueError, TypeError):
        reason = "error_in_grading"  # events can be nested deeply, and numbers be huge
    return CalendarScore(float(reason is None), reason or "pass")


def _problem(
    calendar: Sequence[Any], expected: Mapping[str, WantedEvent], reading: CalendarReading
) -> str | None:
    events = {str(_field(event, "event_id")): event for event in calendar}
    if len(events) != len(expected):
        return _NUMBER
    if not reading.is_nemo and len(calendar) != len(events):
        return _NUMBER  # an event that comes twice
    if _overlap(calendar, reading):
        return "conflicting_events"
    for event_id, wanted in expected.items():
        if event_id not in events:
            raise _Malformed
        if not _satisfied(events[event_id], wanted, reading):
            return "constraint_violated"
    return None


def _overlap(calendar: Sequence[Any], reading: CalendarReading) -> bool:
    """Whether two events overlap; one that is written twice, word for word, counts once."""
    distinct: list[Any] = []
    for event in calendar:
        if event not in distinct:
            distinct.append(event)
    pairs = combinations([_span(event, reading) for event in distinct], 2)
    return any(
        not (end <= other_start or start >= other_end)
        for (start, end), (other_start, other_end) in pairs
    )


def _satisfied(event: Any, wanted: WantedEvent, reading: CalendarReading) -> bool:
    start, end = _span(event, reading)
    if event["duration"] != wanted.duration:
        return False
    if start < wanted.earliest or end > wanted.latest:
        return False
    return wanted.exactly is None or start == wanted.exactly


def _span(event: Any, reading: CalendarReading) -> tuple[float, float]:
    """Start and end in minutes after midnight."""
    duration = _field(event, "duration")
    begins = _field(event, "start_time")
    if not isinstance(duration, int | float) or not isinstance(begins, str):
        raise _Malformed
    try:
        start = reading.time(begins)
        return start, start + duration
    except (ValueError, OverflowError):
        raise _Malformed from None


def _field(event: Any, name: str) -> Any:
    if not isinstance(event, dict) or name not in event:
        raise _Malformed
    return event[name]


def _expected(entry: Any, event_id: str, reading: CalendarReading) -> WantedEvent:
    where = f"exp_cal_state.{event_id}"
    if not isinstance(entry, dict):
        raise TaskInvalid(where, "must be an object")
    duration = entry.get("duration")
    if isinstance(duration, bool) or not isinstance(duration, int | float):
        raise TaskInvalid(f"{where}.duration", "must be a number of minutes")
    if "constraint" not in entry:
        raise TaskInvalid(
            f"{where}.constraint", "is missing; write null for an event without a constraint"
        )
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
                return WantedEvent(duration, earliest, min(latest, reading.time(rest)))
            case "after":
                return WantedEvent(duration, max(earliest, reading.time(rest)), latest)
            case "at":
                return WantedEvent(duration, earliest, latest, reading.time(rest))
            case "between":
                first, second = map(reading.time, rest.split(" and "))
                return WantedEvent(duration, max(earliest, first), min(latest, second))
    except ValueError:
        raise TaskInvalid(
            f"{where}.constraint", "has a time that cannot be read; write times such as 2pm"
        ) from None
    if not reading.is_nemo:
        raise TaskInvalid(
            f"{where}.constraint",
            "must begin with 'before', 'after', 'at' or 'between'; write times such as 2pm",
        )
    return WantedEvent(duration, earliest, latest, understood=False)


def _time(entry: Mapping[str, Any], key: str, where: str) -> int:
    value = entry.get(key)
    try:
        return read_time(value)  # type: ignore[arg-type]  # what is no text raises, too
    except (ValueError, TypeError):
        raise TaskInvalid(f"{where}.{key}", "must be a time such as 10:00") from None
