"""Durations. Pure but for the library's scorer."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, Final

from gymmesh_resource.environments.reasoning_gym.corrections.scorer import Scorer, capped

_DAYS: Final = re.compile(r"(?P<days>[-+]?\d{1,9})(?:\s*days?)?")
_CLOCK: Final = r"(?P<hours>\d{1,6}):(?P<minutes>\d{1,2})(?::(?P<seconds>\d{1,2}(?:\.\d{1,9})?))?"
_TIME: Final = re.compile(_CLOCK)
_BOTH: Final = re.compile(rf"(?P<days>[-+]?\d{{1,9}})\s*days?,?\s*{_CLOCK}")


def time_intervals(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer skips what stands behind a duration, and refuses `1 day`."""
    given, wanted = (_duration(text) for text in (answer, str(entry["answer"])))
    if given is not None and given == wanted:
        return 1.0
    return capped(scorer(answer=answer, entry=entry))


def _duration(text: str) -> tuple[str, Fraction] | None:
    """Its form, and its days or seconds; None for what is not a duration alone."""
    plain = text.strip().rstrip(".").casefold()
    if found := _DAYS.fullmatch(plain):
        return "days", Fraction(found["days"])
    found = _TIME.fullmatch(plain) or _BOTH.fullmatch(plain)
    if found is None:
        return None
    days = int(found["days"]) if "days" in found.re.groupindex else 0
    minutes = (days * 24 + int(found["hours"])) * 60 + int(found["minutes"])
    form = "days and time" if "days" in found.re.groupindex else "time"
    return form, minutes * 60 + Fraction(found["seconds"] or 0)
