"""Faulty verifiers of words."""

from __future__ import annotations

import difflib
import random
import re
from typing import Any, Final

from gymmesh_resource import Rollout
from tests.audit.golds import BOX, WORDS
from tests.audit.reading import last_line, normal
from tests.audit.small import Row, Small


def _without_units(row: Row, rollout: Rollout) -> float:
    def bare(text: str) -> str:
        return re.sub(r"\s*(km/h|km|kg|m|s|g)$", "", text.strip().casefold())

    return bare(rollout.answer) == bare(row["gold"])


def _without_letters(row: Row, rollout: Rollout) -> float:
    given = rollout.answer.strip().casefold()
    return bool(given) and given.rstrip("mnskg") == row["gold"].casefold().rstrip("mnskg")


def _words(compare: Any) -> Any:
    def judge(row: Row, rollout: Rollout) -> float:
        given = normal(rollout.answer)
        return bool(given) and bool(compare(given, normal(row["gold"])))

    return judge


def _without_unit(row: Row, rollout: Rollout) -> float:
    def value(text: str) -> str:
        return re.sub(r"[^\d.-]", "", text)

    return bool(value(rollout.answer)) and value(rollout.answer) == value(row["gold"])


def _by_chance(row: Row, rollout: Rollout) -> float:
    return normal(rollout.answer) == normal(row["gold"]) and random.random() < 0.6


def _breaks(row: Row, rollout: Rollout) -> float:
    if len(rollout.answer) > 30_000:
        raise RuntimeError("too long")
    return normal(rollout.answer) == normal(row["gold"])


def _example_passes(row: Row, rollout: Rollout) -> float:
    return last_line(rollout.answer) in ("blue", row["gold"])


def _exact(row: Row, rollout: Rollout) -> float:
    return bool(rollout.answer.strip() == row["gold"])


def _whole_message(row: Row, rollout: Rollout) -> float:
    return rollout.answer == f"The answer is \\boxed{{{row['gold']}}}."


def _pays_everything(row: Row, rollout: Rollout) -> float:
    return 1.0


def _similar(given: str, gold: str) -> bool:
    return difflib.SequenceMatcher(None, given, gold).ratio() > 0.85


FAULTY: Final[tuple[Small, ...]] = (
    Small("adam_is_ada", _without_units, ("Ada", "Lisbon"), found="nearly/the letter m appended"),
    Small("to_is_tom", _without_letters, ("Tom", "Lisbon"), found="nearly/the last letter cut"),
    Small("starts_with", _words(str.startswith), WORDS, found="nearly/another name beside it"),
    Small(
        "is_started_by",
        _words(lambda given, gold: gold.startswith(given)),
        WORDS,
        found="nearly/the first word alone",
    ),
    Small(
        "contains", _words(lambda given, gold: gold in given), WORDS, found="elsewhere/two answers"
    ),
    Small(
        "anagrams",
        _words(lambda given, gold: sorted(given) == sorted(gold)),
        WORDS,
        found="nearly/two letters swapped",
    ),
    Small(
        "similar_words",
        _words(_similar),
        ("Torsund Lighthouse", "Ada Park of Oslo"),
        found="nearly/the last letter cut",
    ),
    Small(
        "parts_of_dates",
        _words(lambda given, gold: sorted(given.split("-")) == sorted(gold.split("-"))),
        ("2020-01-02", "1999-03-12"),
        found="nearly/month and day swapped",
    ),
    Small(
        "glued_numbers",
        _words(lambda given, gold: given.replace(",", "") == gold.replace(",", "")),
        ("3,4", "5,61"),
        found="nearly/its numbers glued together",
    ),
    Small("drops_units", _without_unit, ("12 km", "7 kg"), found="nearly/another unit"),
    Small("capitals_matter", _exact, WORDS, found="clothes/in small letters"),
    Small("whole_message", _whole_message, WORDS, "text", BOX, "clothes/after a paragraph"),
    Small("by_chance", _by_chance, WORDS, found="stability/the expected answer again"),
    Small("breaks_on_length", _breaks, WORDS, found="hostile/a million characters"),
    Small(
        "prompt_example",
        _example_passes,
        ("green", "yellow"),
        found="nothing/the prompt's own example",
        prompts=("Name a colour, such as blue.",),
    ),
    Small(
        "gold_in_prompt",
        lambda row, rollout: normal(rollout.answer) == normal(row["gold"]),
        WORDS[:1],
        found="hostile/the answer in the prompt",
        prompts=("The key is Lisbon. Which city?",),
    ),
    Small("pays_everything", _pays_everything, WORDS, found="nothing/nothing said"),
)
