"""Words and sentences. Pure but for the library's scorer."""

from __future__ import annotations

import json
import re
from typing import Any

from gymmesh_resource.environments.reasoning_gym.corrections.scorer import Scorer, capped

# What the library gives for a conclusion that is always true.
_TRIVIAL = 0.25
# Signs that are not punctuation of a sentence, and may deny or doubt it.
_SAYING_MARK = re.compile(r"""[^\w\s.,;:'"’“”!()*_`\-–—]""")


def same_words(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer overlooks words and marks beside the right ones: denials, guesses, questions."""
    value = float(scorer(answer=answer, entry=entry))
    marked = _SAYING_MARK.search(answer) is not None
    return capped(value) if marked or _words(answer) != _words(str(entry["answer"])) else value


def spell_backward(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer overlooks what stands behind the word."""
    if answer.strip().casefold() == str(entry["answer"]).casefold():
        return 1.0
    return capped(scorer(answer=answer, entry=entry))


def game_of_life_halting(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer compares the truth of two strings, so that all answers but "" would be right."""
    return float(answer.strip().strip(".").lower() == str(entry["answer"]).lower())


def letter_jumble(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer overlooks words behind the right ones."""
    value = float(scorer(answer=answer, entry=entry))
    same = answer.casefold().split() == str(entry["answer"]).casefold().split()
    return value if same else capped(value)


def codeio(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer takes numbers that differ in their last digits."""
    value = float(scorer(answer=answer, entry=entry))
    if value < 1:
        return value
    start, end = answer.find("{"), answer.rfind("}")
    same = start >= 0 and json.loads(answer[start : end + 1]) == json.loads(entry["answer"])
    return value if same or answer.strip() == entry["answer"].strip() else capped(value)


def word_sorting(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer refuses the right order of the words in other letters, and overlooks words behind
    the right ones.
    """
    wanted = [str(word) for word in entry["metadata"]["sorted_words"]]
    own = {word.casefold(): word for word in wanted}
    given = [word.strip() for word in answer.split(",")]
    if len(own) == len(wanted):  # else words differ by their case alone
        given = [word.strip() for word in answer.strip().rstrip(".").split(",")]
        given = [own.get(word.casefold(), word) for word in given]
        answer = ", ".join(given)
    value = float(scorer(answer=answer, entry=entry))
    return value if len(given) == len(wanted) else capped(value)


def propositional_logic(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer takes a premise for a conclusion."""
    value = float(scorer(answer=answer, entry=entry))
    premises = map(_formula, entry["metadata"]["premises"])
    return min(value, _TRIVIAL) if _formula(answer) in premises else value


def _words(text: str) -> list[str]:
    return sorted(re.findall(r"\w+", text.casefold()))


def _formula(text: str) -> str:
    """A formula without spaces and without the brackets around it."""
    bare = "".join(text.split())
    while bare.startswith("(") and bare.endswith(")") and _is_one(bare):
        bare = bare[1:-1]
    return bare


def _is_one(text: str) -> bool:
    """Whether the bracket that the text begins with closes at its end."""
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return at == len(text) - 1
    return False
