"""Reads a judge's reply. Pure.

Invariant: a reply from which no verdict can be read gives None. It is never a bad verdict.

The rules are those of NeMo Gym's judges. Equivalence: of the two labels, the one that comes
first. Criteria: the one that comes last, or a last line that says yes or no alone. Scores: the
last label that holds a number within the scale.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

YES, NO = "[[YES]]", "[[NO]]"
SCORE_LABEL = re.compile(r"\[\[\s*([+-]?[0-9]{1,6}(?:\.[0-9]{1,6})?)\s*(?:/\s*[0-9]{1,6}\s*)?\]\]")
_THOUGHTS = (("<think>", "</think>"), ("<thinking>", "</thinking>"))
_DECORATION = " \t*_`#>.!:\"'()[]"

Aggregation = Literal["weighted", "mean", "min", "max", "all", "any"]


@dataclass(frozen=True, slots=True)
class Criterion:
    """One line of a rubric: what is asked of the answer, and what it counts.

    `passes`: the judge's verdict that fulfils it. `weight` may be negative for what an answer
    should not do.
    """

    text: str
    passes: bool = True
    weight: float = 1.0


def without_thoughts(reply: str) -> str:
    """A reply without its blocks of reasoning; one that is left open reaches to the end."""
    for opening, closing in _THOUGHTS:
        kept: list[str] = []
        start = 0
        while (found := reply.find(opening, start)) >= 0:
            kept.append(reply[start:found])
            end = reply.find(closing, found)
            start = len(reply) if end < 0 else end + len(closing)
        kept.append(reply[start:])
        reply = "".join(kept)
        # A template may have opened the block, so that the reply only closes it.
        _, closed, rest = reply.rpartition(closing)
        reply = rest if closed else reply
    return reply


def read_equivalence(reply: str, equal: str, not_equal: str) -> bool | None:
    """Whether the judge holds the answers equivalent."""
    text = without_thoughts(reply)
    yes, no = text.find(equal), text.find(not_equal)
    if yes < 0 and no < 0:
        return None
    return yes >= 0 and (no < 0 or yes < no)


def read_criterion(reply: str) -> bool | None:
    """Whether the judge says yes."""
    text = without_thoughts(reply)
    yes, no = text.rfind(YES), text.rfind(NO)
    if yes >= 0 or no >= 0:
        return yes > no
    lines = text.strip().rsplit("\n", 1)
    last = lines[-1].strip(_DECORATION).upper()
    return {"YES": True, "NO": False}.get(last)


def read_score(reply: str, least: float, most: float) -> float | None:
    """The judge's score; None as well where the last one is off the scale."""
    found = SCORE_LABEL.findall(without_thoughts(reply))
    if not found:
        return None
    score = float(found[-1])
    return score if least <= score <= most else None


def aggregate(criteria: Sequence[Criterion], met: Sequence[bool], how: Aggregation) -> float:
    """The reward of a rubric, 0.0 to 1.0; `met` says for each criterion whether it is fulfilled.

    Weighted: the weights of what is fulfilled over the sum of the positive weights, kept within
    0 and 1. Without negative weights that is the weighted mean.
    """
    if how in ("all", "min"):
        return float(all(met))
    if how in ("any", "max"):
        return float(any(met))
    if how == "mean":
        return math.fsum(map(float, met)) / len(met)
    gained = math.fsum(part.weight for part, ok in zip(criteria, met, strict=True) if ok)
    possible = math.fsum(part.weight for part in criteria if part.weight > 0)
    return min(1.0, max(0.0, gained / possible))
