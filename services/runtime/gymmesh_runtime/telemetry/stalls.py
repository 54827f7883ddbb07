"""What held up the event loop of this process, and for how long.

A method of an environment or an agent that blocks where it should await stops every rollout of
its process: their calls run out of time although every peer answered. The code that drives such
a method notes its stalls here; the code that types a time-out looks whether there was one.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

IS_FACE = True  # see tools/import_faces.py

#: Shorter ones are not noted, in seconds.
NOTICED_S: Final = 1.0
_KEPT: Final = 64
_MOST_NAMES: Final = 1000
# Where the environments are that come with gymmesh, whose code a user does not change.
_OURS: Final = "gymmesh_resource/environments/"
_FOR_AUTHORS: Final = (
    "Make the method a plain def, which runs in a thread, or put the blocking code into await "
    "asyncio.to_thread(...)"
)
_FOR_USERS: Final = (
    "The environment comes with gymmesh: its process has too little CPU for this load. Lower "
    "--concurrency, or serve more instances of the environment (gym-cli serve environment)"
)

_log = logging.getLogger("gymmesh.stalls")
_stalls: deque[Stall] = deque(maxlen=_KEPT)
# The length in seconds up to which a method's stalls were logged.
_logged: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class Stall:
    """`method` (of the environment `owner`, written at `place`) blocked the loop for `seconds`,
    until `ended` on the monotonic clock.
    """

    owner: str
    method: str
    place: str
    seconds: float
    ended: float


def note_stall(owner: str, method: str, place: str, seconds: float) -> None:
    """Keep a stall that has just ended, and log it."""
    _stalls.append(Stall(owner, method, place, seconds, time.monotonic()))
    log_stall(method, place, seconds)


def log_stall(method: str, place: str, seconds: float) -> None:
    """Log a stall, also one that goes on: again for a method only when one is thrice as long."""
    if seconds < 3 * _logged.get(method, 0.0) or len(_logged) >= _MOST_NAMES:
        return
    _logged[method] = seconds
    _log.error(
        "%s (%s) has blocked the event loop for %.1f s. Meanwhile no rollout of this process "
        "makes progress, and model calls time out. %s",
        method,
        place,
        seconds,
        advice(place),
        # A run that stands still has to say why, not only in its log.
        extra={"urgent": True},
    )


def advice(place: str) -> str:
    """What to do about a method at this place: its author, or the user where it is gymmesh's."""
    return _FOR_USERS if _OURS in place.replace("\\", "/") else _FOR_AUTHORS


def stalls_within(seconds: float) -> list[Stall]:
    """The stalls that ended within the last so many seconds, the longest first."""
    after = time.monotonic() - seconds
    recent = [stall for stall in _stalls if stall.ended >= after]
    return sorted(recent, key=lambda stall: -stall.seconds)
