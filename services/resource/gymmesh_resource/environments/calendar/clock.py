"""Times of day, as calendars and constraints write them. Pure."""

from __future__ import annotations

# Digits of an hour or a minute; more is no time of day, and slow to read.
_DIGITS = 8


def read_time(text: str) -> int:
    """Minutes after midnight of "10:30", "10:30am", "2pm" or "2:15 pm".

    In small letters, as NeMo Gym's calendar rows have it; hours and minutes are not held to a
    day's. Raises ValueError, and TypeError for what is no text.
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
        raise ValueError(f"{text[:20]!r} is no time of day")
    if any(len(part) > _DIGITS for part in parts):
        raise ValueError("a time of day has fewer digits")
    hour, minute = int(parts[0]), int(parts[1]) if len(parts) == 2 else 0
    return hour, minute
