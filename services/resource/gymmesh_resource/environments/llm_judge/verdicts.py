"""Reads a judge's reply. Pure.

Invariant: a reply from which no verdict can be read gives None. It is never a bad verdict.

A judge is asked for its label alone on the last line, so the last label with a line of its own is
the verdict. Without one, a label counts where the reply does not have the other one, too. Of
scores the last label counts, where it holds a number within the scale. NeMo Gym's rules are the
first label for equivalence and the last one for criteria, wherever they stand.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

YES, NO = "[[YES]]", "[[NO]]"
SCORE_LABEL = re.compile(r"\[\[\s*[+-]?[0-9][^\[\]]{0,40}\]\]")
"""What a score looks like in the material that is judged."""
# Any label of a reply, and what a score is in one.
_LABEL = re.compile(r"\[\[\s*([+-]?[0-9]{1,6}(?:\.[0-9]{1,6})?)\s*(?:/\s*[0-9]{1,6}\s*)?\]\]")
_LABEL = re.compile(r"\[\[([^\[\]]{0,40})\]\]")
_SCORE = re.compile(r"\s*([+-]?[0-9]{1,6}(?:\.[0-9]{1,6})?)\s*(?:/\s*([0-9]{1,6}(?:\.0+)?)\s*)?")
_THOUGHTS = (("<think>", "</think>"), ("<thinking>", "</thinking>"))
_DECORATION = " \t*_`#>.!:\"'()[]"

Aggregation = Literal["weighted", "mean", "min", "max", "all", "any"]


@dataclass(frozen=True, slots=True)
class Criterion:
    """One line of a rubric: a requirement for the answer, and its weight.

    `passes`: the judge's verdict that fulfils it. `weight` is negative for something that an answer
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


def read_equivalence(
    reply: str, equal: str, not_equal: str, *, as_nemo: bool = False
) -> bool | None:
    """Whether the judge holds the answers equivalent."""
    text = without_thoughts(reply)
    if not as_nemo:
        return _alone(text, equal, not_equal)
    yes, no = text.find(equal), text.find(not_equal)
    if yes < 0 and no < 0:
        return None
    return yes >= 0 and (no < 0 or yes < no)


def read_criterion(reply: str, *, as_nemo: bool = False) -> bool | None:
    """Whether the judge says yes; a last line that says yes or no without brackets will do."""
    text = without_thoughts(reply)
    if YES in text or NO in text:
        return text.rfind(YES) > text.rfind(NO) if as_nemo else _alone(text, YES, NO)
    lines = text.strip().rsplit("\n", 1)
    last = lines[-1].strip(_DECORATION).upper()
    return {"YES": True, "NO": False}.get(last)


def _alone(text: str, yes: str, no: str) -> bool | None:
    """The last label alone on its line, or else the only one of the two that occurs."""
    for line in reversed(text.splitlines()):
        for label, verdict in ((yes, True), (no, False)):
            before, found, after = line.partition(label)
            if found and not (before + after).strip(_DECORATION):
                return verdict
    says_yes, says_no = yes in text, no in text
    return says_yes if says_yes != says_no else None


def read_score(reply: str, least: float, most: float) -> float | None:
    """The judge's score; None as well where the last label is off the scale, is out of another
    number than the scale's most, or holds no number.
    """
    labels = _LABEL.findall(without_thoughts(reply))
    found = _SCORE.fullmatch(labels[-1]) if labels else None
    if found is None or (found[2] is not None and float(found[2]) != most):
        return None
    score = float(found[1])
    return score if least <= score <= most else None


def aggregate(
    criteria: Sequence[Criterion],
    met: Sequence[bool],
    how: Aggregation,
    *,
    as_nemo: bool = False,
) -> float:
    """The reward of a rubric, 0.0 to 1.0; `met` says for each criterion whether it applies.

    Weighted: the weights of what is met over the sum of the positive weights, kept within 0 and 1.
    Without negative weights that is the weighted mean. In the other ways a criterion of negative
    weight is fulfilled when it is not met, and one without weight does not count.
    """
    if how == "weighted":
        gained = math.fsum(part.weight for part, ok in zip(criteria, met, strict=True) if ok)
        possible = math.fsum(part.weight for part in criteria if part.weight > 0)
        return min(1.0, max(0.0, gained / possible))
    fulfilled = met if as_nemo else fulfils(criteria, met)
    if how in ("all", "min"):
        return float(all(fulfilled))
    if how in ("any", "max"):
        return float(any(fulfilled))
    return math.fsum(map(float, fulfilled)) / len(fulfilled)


def fulfils(criteria: Sequence[Criterion], met: Sequence[bool]) -> list[bool]:
    """Which criteria with a weight an answer fulfils: one of negative weight by not meeting it."""
    pairs = zip(criteria, met, strict=True)
    return [ok == (part.weight > 0) for part, ok in pairs if part.weight]
