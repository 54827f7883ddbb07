"""Times of day, as calendars and constraints write them. Pure."""

from __future__ import annotations

import re
import unicodedata

# Digits of an hour or a minute; more is not a time of day, and slow to read.
_DIGITS = 8
_CLOCK = re.compile(
    r"(?P<hour>[0-9]{1,2})(?::(?P<minute>[0-5][0-9])(?::00)?)?\s*(?P<half>[ap])?(?:\.?m\.?)?",
    re.IGNORECASE,
)


def read_clock(text: str) -> int:
    """Minutes after midnight of "10:30", "10:30:00", "10:30 AM", "2 p.m." or "noon".

    Only times of a day, also in full-width digits. Raises ValueError, and TypeError for a value
    that is not text.
    """
    if not isinstance(text, str):
        raise TypeError(f"a time is text, not {type(text).__name__}")
    bare = unicodedata.normalize("NFKC", text[:40]).strip()
    if bare.lower() in ("noon", "midnight"):
        return 720 if bare.lower() == "noon" else 0
    found = _CLOCK.fullmatch(bare)
    if found is None or not (found["minute"] or found["half"]):
        raise ValueError(f"{text[:20]!r} is not a time of day")
    if bool(found["half"]) != bare.lower().rstrip(".").endswith("m"):
        raise ValueError(f"{text[:20]!r} is not a time of day")
    hour, minute = int(found["hour"]), int(found["minute"] or 0)
    if found["half"]:
        if not 1 <= hour <= 12:
            raise ValueError(f"{text[:20]!r} is not a time of day")
        hour = hour % 12 + (12 if found["half"].lower() == "p" else 0)
    if hour * 60 + minute > 24 * 60:
        raise ValueError(f"{text[:20]!r} is not a time of day")
    return hour * 60 + minute


def read_time(text: str) -> int:
    """Minutes after midnight of "10:30", "10:30am", "2pm" or "2:15 pm", as NeMo Gym reads it.

    Only lower case; hours may exceed 24 and minutes 60. Raises ValueError, and TypeError for a
    value that is not text.
    """
    if not isinstance(text, str):
        raise TypeError(f"a time is text, not {type(text).__name__}")
    bare = text.strip()
    for half, offset in (("am", 0), ("pm", 12)):
        if half in bare:
            hour, minute = _parts(bare.replace(half, ""), needs_minutes=False)
            return ((0 if hour == 12 else hour) + offset) * 60 + minute
    hour, minute = _parts(bare, needs_minutes=True)
    return hour * 60 + minute


def _parts(text: str, *, needs_minutes: bool) -> tuple[int, int]:
    parts = text.split(":")
    if len(parts) > 2 or (needs_minutes and len(parts) < 2):
        raise ValueError(f"{text[:20]!r} is not a time of day")
    if any(len(part) > _DIGITS for part in parts):
        raise ValueError("the hour or the minute has too many digits")
    hour, minute = int(parts[0]), int(parts[1]) if len(parts) == 2 else 0
    return hour, minute
