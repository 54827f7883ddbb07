r"""Makes cases/calendar.jsonl: which calendars are right is written here by hand.

Run it as `.venv/bin/python -m tests.verdicts.make_calendar`.
"""

# ruff: noqa: E501  # a line a case reads better than its parts
from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.verdicts.case_files import case, write

Wanted = dict[str, list[Any]]
ONE: Wanted = {"0": [60, "at 12pm"]}
FREE: Wanted = {"0": [60, None]}
TWO: Wanted = {"0": [60, "before 11:30am"], "1": [30, "after 2pm"]}
BETWEEN: Wanted = {"0": [75, "between 11am and 12:15pm"]}
# Expected events, the answer's (id, start, duration), reward, why. `+`: in other clothes.
EVENTS: list[tuple[Wanted, list[list[Any]], float, str]] = [
    (ONE, [[0, "12:00", 60]], 1.0, "as asked"),
    (ONE, [[0, "12:00 PM", 60]], 1.0, "+capital letters"),
    (ONE, [[0, "12pm", 60]], 1.0, "+without minutes"),
    (ONE, [[0, "12:00 p.m.", 60]], 1.0, "+full stops"),
    (ONE, [[0, "12:00:00", 60]], 1.0, "+seconds"),
    (ONE, [[0, "noon", 60]], 1.0, "+a word"),
    (ONE, [["0", "12:00", 60.0]], 1.0, "+an id as text and a float"),
    (ONE, [[0, " 12:00 ", 60]], 1.0, "+spaces"),
    (ONE, [[0, "12:15", 60]], 0.0, "another start"), (ONE, [[0, "00:00", 60]], 0.0, "another half of the day"),
    (ONE, [[0, "12:00 AM", 60]], 0.0, "another half of the day"), (ONE, [[0, "12:00", 45]], 0.0, "another duration"),
    (ONE, [[0, "12:00", -60]], 0.0, "a negative duration"), (ONE, [[0, "12:00", "60"]], 0.0, "a duration as text"),
    (ONE, [[0, "12:00", None]], 0.0, "no duration"), (ONE, [[0, "11:60", 60]], 0.0, "not a time of day"),
    (ONE, [[0, "36:00", 60]], 0.0, "not a time of day"), (ONE, [[0, "1_2:00", 60]], 0.0, "not a time of day"),
    (ONE, [[0, "12", 60]], 0.0, "not a time of day"), (ONE, [[0, "12:00 xm", 60]], 0.0, "not a time of day"),
    (ONE, [[1, "12:00", 60]], 0.0, "another event"), (ONE, [], 0.0, "an empty calendar"),
    (ONE, [[0, "12:00", 60], [1, "13:00", 60]], 0.0, "an event too many"),
    (ONE, [[0, "10:00", 60], [0, "12:00", 60]], 0.0, "an event twice, at two times"),
    (ONE, [[0, "12:00", 60], [0, "12:00", 60]], 0.0, "an event twice"),
    (FREE, [[0, "10:00", 60]], 1.0, "as early as may be"), (FREE, [[0, "15:00", 60]], 1.0, "as late as may be"),
    (FREE, [[0, "09:59", 60]], 0.0, "too early in the day"), (FREE, [[0, "15:01", 60]], 0.0, "too late in the day"),
    (FREE, [[0, "3 PM", 60]], 1.0, "+the afternoon"), (FREE, [[0, "3:00", 60]], 0.0, "the night"),
    (BETWEEN, [[0, "11:00", 75]], 1.0, "fills the time between"), (BETWEEN, [[0, "11:01", 75]], 0.0, "ends too late"),
    (BETWEEN, [[0, "10:45", 75]], 0.0, "starts too early"), (BETWEEN, [[0, "11:00 am", 75]], 1.0, "+with am"),
    (TWO, [[0, "10:00", 60], [1, "14:00", 30]], 1.0, "as asked"),
    (TWO, [[1, "14:00", 30], [0, "10:00", 60]], 1.0, "+another order"),
    (TWO, [[0, "10:30", 60], [1, "14:00", 30]], 1.0, "ends at that time"),
    (TWO, [[0, "10:31", 60], [1, "14:00", 30]], 0.0, "ends after that time"),
    (TWO, [[0, "10:00", 60], [1, "13:59", 30]], 0.0, "starts before that time"),
    (TWO, [[0, "10:00", 60]], 0.0, "an event is missing"), (TWO, [[0, "14:00", 60], [1, "10:00", 30]], 0.0, "times are swapped"),
    ({"0": [60, None], "1": [60, None]}, [[0, "10:00", 60], [1, "10:30", 60]], 0.0, "two events overlap"),
    ({"0": [60, None], "1": [60, None]}, [[0, "10:00", 60], [1, "10:00", 60]], 0.0, "two events overlap"),
    ({"0": [60, None], "1": [60, None]}, [[0, "10:00", 60], [1, "11:00", 60]], 1.0, "one after another"),
    ({}, [], 1.0, "nothing is expected, and nothing is there"), ({}, [[0, "10:00", 60]], 0.0, "an event that nobody asked for"),
]  # fmt: skip
RIGHT = '[{"event_id": 0, "event_name": "Lunch", "start_time": "12:00", "duration": 60}]'
WRONG = RIGHT.replace("12:00", "10:00")
TEXTS: list[tuple[Wanted, str, float | None, str]] = [
    (ONE, RIGHT, 1.0, "the list alone"),
    (ONE, f"```json\n{RIGHT}\n```", 1.0, "+a fence"),
    (ONE, f"Here is your calendar:\n{RIGHT}\nEnjoy!", 1.0, "+words around it"),
    (ONE, f"<think>{WRONG}</think>{RIGHT}", 1.0, "+a thought before it"),
    (ONE, f"{WRONG}\nNo, it has to be noon:\n{RIGHT}", 1.0, "+the last list counts"),
    (ONE, RIGHT.replace("Lunch", "Lunch [team]"), 1.0, "+brackets in a name"),
    (ONE, f"As of [today]: {RIGHT}", 1.0, "+brackets in the words"),
    (ONE, RIGHT.replace(", ", ",\n  "), 1.0, "+lines"),
    (ONE, f"{RIGHT}\nor\n{WRONG}", 0.0, "the last list counts"),
    (ONE, f"<think>{RIGHT}", 0.0, "a thought without an end"),
    (ONE, RIGHT[1:-1], 0.0, "an object is not the list"), (ONE, RIGHT[:-1], 0.0, "the list has no end"),
    (ONE, RIGHT.replace('"', "'"), 0.0, "other quotes are not JSON"), (ONE, "[]", 0.0, "an empty calendar"),
    (ONE, "Lunch at 12:00 for 60 minutes.", 0.0, "no list"), (ONE, "", 0.0, "nothing"),
    (ONE, "I'm sorry, I can't do that.", 0.0, "a refusal"), (ONE, "[" * 5_000, 0.0, "brackets alone"),
    (ONE, '[{"event_id": 0, "duration": 60}]', 0.0, "no start"), (ONE, '[{"start_time": "12:00", "duration": 60}]', 0.0, "no id"),
    ({}, "Your calendar is empty.", 1.0, "nothing is expected"), ({}, "", 0.0, "nothing is written"),
    ({"0": [60, "during lunch"]}, RIGHT, None, "a constraint that is not understood"),
    ({"0": ["60", None]}, RIGHT, None, "an expected duration that is text"),
    ({"0": [60, "at tea time"]}, RIGHT, None, "an expected time that is not one"),
]  # fmt: skip


def _row(wanted: Wanted) -> dict[str, Any]:
    return {
        "exp_cal_state": {
            key: {
                "event_id": int(key),
                "duration": duration,
                "constraint": constraint,
                "min_time": "10:00",
                "max_time": "16:00",
            }
            for key, (duration, constraint) in wanted.items()
        }
    }


def _cases() -> Iterator[dict[str, Any]]:
    keys = ("event_id", "start_time", "duration")
    made = [
        (wanted, json.dumps([dict(zip(keys, one, strict=True)) for one in events]), right, why)
        for wanted, events, right, why in EVENTS
    ]
    for wanted, answer, right, why in [*made, *TEXTS]:
        clothes = {"clothes": True} if why.startswith("+") else {}
        yield case(_row(wanted), answer, right, why.removeprefix("+"), **clothes)


if __name__ == "__main__":
    write("calendar", _cases())
