"""A zone is lost while a run goes on: simulated attempt by attempt. Deterministic.

Attempts in the zone are known to be lost once the collector has tried in vain to reach their
agents for `reconnect_s`; their places are taken till then. Then each is made again, elsewhere.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

#: A retry of an attempt lost with its agent waits so long (`docs/how-to/collecting.md`).
RETRY_S: Final = 1.0
_GOLDEN: Final = 0.6180339887498949


@dataclass(frozen=True, slots=True)
class Loss:
    """How it went.

    Attributes:
        seconds: of the whole run.
        lost: attempts that were lost.
        wasted_s: seconds that these had run, in all.
        slowest: rollouts that ended in the worst ten seconds, over those of ten usual ones.
    """

    seconds: float
    lost: int
    wasted_s: float
    slowest: float


@dataclass(frozen=True, slots=True)
class Course:
    """A run.

    Attributes:
        mean_s: of an attempt.
        spread: attempts take from 1 - spread to 1 + spread times the mean.
        zones: alike; one of them is lost.
        full: whether the zones have room for what is in flight and no more, so that what is lost
            with one finds none; else the others take it.
        lost_at_s: when; None: none is lost.
    """

    rollouts: int
    in_flight: int
    mean_s: float
    spread: float
    zones: int
    reconnect_s: float
    full: bool = False
    lost_at_s: float | None = None


def run(course: Course) -> Loss:
    """The run from its first attempt to its last."""
    # Each attempt in flight: when it ends, a number, its zone, when it began.
    flying: list[tuple[float, int, int, float]] = []
    ended: list[float] = []
    started = lost = 0
    wasted = 0.0
    again = 0  # attempts lost, to be made again
    places: list[tuple[float, int]] = [(0.0, at % course.zones) for at in range(course.in_flight)]
    heapq.heapify(places)  # free places: from when on, and where
    gone = course.lost_at_s
    while len(ended) < course.rollouts:
        while places and (started < course.rollouts or again):
            since, zone = places[0]
            if flying and flying[0][0] < since:
                break
            heapq.heappop(places)
            if gone is not None and since >= gone and zone == 0:
                if course.full:
                    continue
                zone = 1 + started % (course.zones - 1)
            if again:
                again -= 1
            else:
                started += 1
            heapq.heappush(flying, (since + _length(course, started + lost), started, zone, since))
        end, _, zone, began = heapq.heappop(flying)
        if gone is not None and zone == 0 and end > gone and began < gone:
            lost, again, wasted = lost + 1, again + 1, wasted + gone - began
            heapq.heappush(places, (gone + course.reconnect_s + RETRY_S, 0))
            continue
        ended.append(end)
        heapq.heappush(places, (end, zone))
    return Loss(max(ended), lost, wasted, _slowest(course, ended))


def _length(course: Course, number: int) -> float:
    """How long an attempt takes: spread evenly, in an order that has no pattern."""
    place = (number * _GOLDEN) % 1.0
    return course.mean_s * (1 + course.spread * (2 * place - 1))


def _slowest(course: Course, ended: list[float]) -> float:
    """The worst ten seconds from the loss on, while all places could be taken."""
    if course.lost_at_s is None:
        return 1.0
    until = max(ended) - 2 * course.mean_s
    usual = 10 * course.in_flight / course.mean_s
    ended = sorted(ended)
    counts = [
        bisect_left(ended, at + 10) - bisect_left(ended, at)
        for at in range(int(course.lost_at_s), int(until) - 10, 5)
    ]
    return min(counts, default=0) / usual
