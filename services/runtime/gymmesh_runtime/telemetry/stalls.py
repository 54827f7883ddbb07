"""Which code blocked the event loop of this process, and for how long.

If an async method of an environment or an agent blocks, it stops every rollout of its process.
Calls then time out although every peer answered. The code that runs such a method records its
stalls here. The code that handles a time-out checks whether there was a stall.
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
    "Make the method a plain `def`, which runs in a thread, or put the blocking code into "
    "`await asyncio.to_thread(...)`"
)
_FOR_USERS: Final = (
    "The environment comes with gymmesh: the environment's process has too little CPU for this "
    "load. Lower --concurrency, or serve more instances of the environment "
    "(`gym-cli serve environment`)"
)

_log = logging.getLogger("gymmesh.stalls")
_stalls: deque[Stall] = deque(maxlen=_KEPT)
# The length in seconds up to which a method's stalls were logged.
_logged: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class Stall:
    """`method` blocked the loop for `seconds`, until `ended` on the monotonic clock. The method
    belongs to the environment `owner` and is written at `place`.
    """

    owner: str
    method: str
    place: str
    seconds: float
    ended: float


def note_stall(owner: str, method: str, place: str, seconds: float) -> None:
    """Record a stall that has just ended, and log it."""
    _stalls.append(Stall(owner, method, place, seconds, time.monotonic()))
    log_stall(method, place, seconds)


def log_stall(method: str, place: str, seconds: float) -> None:
    """Log a stall, which may still continue. A method is logged again only for a stall three times
    as long.
    """
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
    """What to do about a method at this place: advice for the method's author, or for the user if
    the method is gymmesh's.
    """
    return _FOR_USERS if _OURS in place.replace("\\", "/") else _FOR_AUTHORS


def stalls_within(seconds: float) -> list[Stall]:
    """The stalls that ended within the last ``seconds``, the longest first."""
    after = time.monotonic() - seconds
    recent = [stall for stall in _stalls if stall.ended >= after]
    return sorted(recent, key=lambda stall: -stall.seconds)
