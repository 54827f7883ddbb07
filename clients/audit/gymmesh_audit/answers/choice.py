"""Choices: other options, several at once, denied ones; usual ways to name one. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gymmesh_audit.answers.variant import Variant
from gymmesh_audit.gold import ANSWER, Gold, same


def nearly(gold: Gold) -> Iterator[Variant]:
    """Other options, and no option at all."""
    others = [one for one in gold.choices if not same(one, gold.answer)]
    for number, other in enumerate(others[:4], start=1):
        yield Variant(f"another option ({number})", other)
    if len(gold.answer) == 1 and gold.answer.isalpha():
        yield Variant("the letter glued to a digit", f"3{gold.answer}")
        yield Variant("the letter in a word", f"{gold.answer}{'k' * 3}")
    if gold.answer.strip("-").isdecimal():
        yield Variant("the number after the expected number", str(int(gold.answer) + 1))


def clothes(gold: Gold) -> Iterator[Variant]:
    """The same option in other forms."""
    answer = gold.answer
    yield Variant("spaces around it", f" {answer} ")
    told = f"Let me compare the options.\n\n{gold.message}\n"
    yield Variant("after a paragraph", message=told, usual=gold.form != ANSWER)
    if len(answer) != 1 or not answer.isalpha():
        return
    boxed = "\\boxed" in gold.form
    yield Variant("in brackets", f"({answer})")
    if boxed:
        yield Variant("as text in the box", f"\\text{{{answer}}}", where=r"\\")
        yield Variant("bold in the box", f"\\textbf{{{answer}}}", where=r"\\")
    else:
        yield Variant("a trailing dot", f"{answer}.")
        yield Variant("in bold", message=gold.say(f"**{answer}**"))
