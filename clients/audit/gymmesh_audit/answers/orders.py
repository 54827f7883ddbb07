"""The same characters in another order. Comparisons of multisets or sorted texts miss such a
change. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gymmesh_audit.answers.variant import Variant
from gymmesh_audit.gold import number_of, same

_RUN = re.compile(r"\d+")
_DECIMAL = re.compile(r"-?\d+\.\d+")


def digit_orders(answer: str) -> Iterator[Variant]:
    """The answer with the digits of one number in other orders: the last number that has several
    different digits. In a decimal number, if neither side of the point has two different digits,
    all its digits are one sequence.
    """
    if number_of(answer) == 0:
        return
    runs = [range(*found.span()) for found in _RUN.finditer(answer)]
    mixed: list[Sequence[int]] = [run for run in runs if _differ(answer, run)]
    if not mixed and _DECIMAL.fullmatch(answer):
        mixed = [places for places in [[*runs[0], *runs[1]]] if _differ(answer, places)]
    if not mixed:
        return
    places = mixed[-1]
    digits = [answer[place] for place in places]
    orders = {
        "two digits swapped": swapped(digits),
        "its digits read backward": digits[::-1],
        "its digits sorted": sorted(digits),
    }
    made = {answer}
    for name, order in orders.items():
        changed = _put(answer, places, order)
        if changed not in made and not same(changed, answer):
            made.add(changed)
            yield Variant(name, changed)


def swapped(characters: Sequence[str]) -> list[str]:
    """The answer with two neighbouring characters swapped: the last two that differ in more than
    case.
    """
    order = list(characters)
    for place in range(len(order) - 2, -1, -1):
        if order[place].casefold() != order[place + 1].casefold():
            order[place], order[place + 1] = order[place + 1], order[place]
            break
    return order


def _differ(answer: str, places: Sequence[int]) -> bool:
    return len({answer[place] for place in places}) > 1


def _put(answer: str, places: Sequence[int], order: Sequence[str]) -> str:
    characters = list(answer)
    for place, character in zip(places, order, strict=True):
        characters[place] = character
    return "".join(characters)
