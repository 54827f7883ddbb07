"""Each instruction against responses that follow it and that do not; laws; hostile lengths."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gymmesh_resource.environments.instruction_following.formats import title
from gymmesh_resource.environments.instruction_following.ifeval import (
    bullets,
    highlights,
    placeholders,
)
from gymmesh_resource.environments.instruction_following.language import split_sentences
from gymmesh_resource.environments.instruction_following.languages import DETECTED
from gymmesh_resource.environments.instruction_following.registry import (
    INSTRUCTIONS,
    REFERENCE,
    ArgumentError,
)
from gymmesh_resource.environments.instruction_following.verdict import (
    bind,
    followed,
    reward,
)

ENTRIES: list[dict[str, Any]] = yaml.load(
    Path(__file__).with_name("followed.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
)
CASES = [
    (entry["id"], entry.get("args", {}), str(text), follows, text in entry.get("differs", ()))
    for entry in ENTRIES
    for follows in (True, False)
    for text in entry["follow" if follows else "fail"]
]
CHECKS = [
    bind(entry["id"], entry.get("args", {}), as_ifeval)
    for entry in ENTRIES
    for as_ifeval in (False, True)
]
MARKS = st.text(alphabet="*- \n\tab<>[]\x0b", max_size=14)


@pytest.mark.parametrize(("name", "args", "text", "follows", "differs"), CASES)
def test_case(name: str, args: dict[str, Any], text: str, follows: bool, differs: bool) -> None:
    assert bind(name, args)(text) is follows
    assert bind(name, args, as_ifeval=True)(text) is (follows != differs)


def test_the_languages_are_those_that_the_detector_has_a_profile_of() -> None:
    profiles = resources.files("langdetect") / "profiles"
    assert {profile.name for profile in profiles.iterdir() if profile.is_file()} == DETECTED


@pytest.mark.parametrize("code", ["xx", "tlh", "pig latin", "eo", 5])
def test_a_language_that_no_response_can_be_told_to_be_in_is_refused(code: object) -> None:
    with pytest.raises(ArgumentError, match="language"):
        bind("language:response_language", {"language": code})


def test_the_table_has_every_instruction() -> None:
    assert {entry["id"] for entry in ENTRIES} == set(INSTRUCTIONS)
    assert len(INSTRUCTIONS) == 54
    differing = {entry["id"] for entry in ENTRIES if entry.get("differs")}
    assert set(REFERENCE) >= differing
    assert len(CASES) >= 40


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", []),
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Dr. No met Mr. Bond.", ["Dr. No met Mr. Bond."]),
        ("It is 3.5 at a.com today.", ["It is 3.5 at a.com today."]),
        ("Wait... Go.", ["Wait...", "Go."]),
        ('He said "Go." Then left.', ['He said "Go".', "Then left."]),
        ("U.S.A. But no.", ["U.S.A.", "But no."]),
        ("Apple Inc. It sells.", ["Apple Inc", "It sells."]),
        ("A Ph.D. works.", ["A Ph.D. works."]),
        ("No end", ["No end"]),
        ("a\nb.", ["a b."]),
        ("e.g. this.", ["e.g. this."]),
    ],
)
def test_sentences_by_rules_of_thumb(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


@settings(max_examples=400)
@given(MARKS)
def test_counting_agrees_with_the_patterns_that_define_it(text: str) -> None:
    # These patterns are IFEval's own; they take quadratic time, which ours must not.
    starred = re.findall(r"^\s*\*[^\*].*$", text, flags=re.MULTILINE)
    hyphens = re.findall(r"^\s*-.*$", text, flags=re.MULTILINE)
    assert bullets(text, len(starred) + len(hyphens))

    brackets = len(re.findall(r"\[.*?\]", text))
    assert placeholders(text, brackets)
    assert not placeholders(text, brackets + 1)

    titles = re.findall(r"<<[^\n]+>>", text)
    assert title(text) == any(found.lstrip("<").rstrip(">").strip() for found in titles)

    single = [found.strip("*") for found in re.findall(r"\*[^\n\*]*\*", text)]
    double = [found[2:-2] for found in re.findall(r"\*\*[^\n\*]*\*\*", text)]
    passages = sum(1 for found in (*single, *double) if found.strip())
    assert highlights(text, passages)
    assert not highlights(text, passages + 1)


@given(st.text())
def test_any_text_can_be_judged(text: str) -> None:
    results = followed(text, CHECKS)

    assert len(results) == len(CHECKS)
    assert all(isinstance(result, bool) for result in results)


def test_a_language_is_told_the_same_way_each_time() -> None:
    check = bind("language:response_language", {"language": "nl"})

    assert len({check("de man en die vrou is hier in die huis") for _ in range(20)}) == 1


@pytest.mark.parametrize(
    "text",
    [
        *("\n" * 60_000, "[" * 60_000, "<" * 60_000, "*" * 60_000, "a. " * 20_000),
        *("-" * 60_000, " " * 60_000 + "x", "\n* " * 20_000, "<<>>" * 15_000),
        *('"' * 60_000, "Time " * 12_000, "\ud800 \x00", "p." * 30_000),
    ],
    ids=["lines", "brackets", "angles", "stars", "dots", "hyphens", "spaces", "bullets", "pairs",
         "quotes", "phrases", "odd", "postscripts"],
)  # fmt: skip
def test_long_and_odd_text_is_judged_in_the_end(text: str) -> None:
    # What is quadratic would outlast the test's time limit.
    assert len(followed(text, CHECKS)) == len(CHECKS)


@pytest.mark.parametrize("text", ["", " \n\t", "\u3000"])
def test_an_empty_response_follows_nothing(text: str) -> None:
    assert followed(text, [bind("punctuation:no_comma", {})]) == [False]


@pytest.mark.parametrize(
    ("results", "binary", "fraction"),
    [([True], 1.0, 1.0), ([True, False], 0.0, 0.5), ([False], 0.0, 0.0), ([True] * 3, 1.0, 1.0)],
)
def test_rewards(results: list[bool], binary: float, fraction: float) -> None:
    assert reward(results, "binary") == binary
    assert reward(results, "fraction") == fraction
