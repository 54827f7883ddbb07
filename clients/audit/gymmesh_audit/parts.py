"""The parts of an expected answer, the calls and the message: which part an audit varies. Pure.

The kind of an answer names one part: the kind `calls` names the calls, each other kind the message.
The audit always varies this part. It varies the other part, too, if the verifier reads the other
part. Otherwise every variant would win, although nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from gymmesh_audit.attack import Attack
from gymmesh_audit.gold import Gold, number_of

GoldPart = Literal["calls", "message", "turns"]


def without_other_part(gold: Gold) -> Attack | None:
    """The expected answer without the part that its kind does not name. If this attack wins, the
    verifier does not read the other part. None if the answer has one part.
    """
    if not gold.calls or not gold.answer:
        return None
    if gold.kind == "calls":
        name = "the expected calls with another message"
        return Attack(name, "nearly", "Harbour 17", None, gold.calls, turns=gold.turns)
    return Attack("the expected message without its calls", "nearly", gold.message, None)


def varied(gold: Gold, *, both: bool) -> list[Gold]:
    """The same expected answer under each kind by which it is varied. both: whether the verifier
    reads both parts.
    """
    if not gold.calls:
        return [gold]
    if not gold.answer:
        return [replace(gold, kind="calls")]
    if not both:
        return [gold]
    if gold.kind != "calls":
        return [gold, replace(gold, kind="calls")]
    return [gold, replace(gold, kind="text" if number_of(gold.answer) is None else "number")]


def message_first(parts: Sequence[Gold]) -> list[Gold]:
    """Expected answers whose message is varied before those whose calls are varied."""
    return sorted(parts, key=lambda one: one.kind == "calls")


def not_varied(golds: Sequence[Gold], parts: Sequence[Gold]) -> list[GoldPart]:
    """The parts of a task's expected answers that `parts` do not vary."""
    kinds = {one.kind for one in parts}
    missing: list[GoldPart] = []
    if any(one.calls and one.answer for one in golds):
        if "calls" not in kinds:
            missing.append("calls")
        if kinds <= {"calls"}:
            missing.append("message")
    if any(one.turns for one in golds):
        missing.append("turns")
    return missing
