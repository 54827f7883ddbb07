"""Choices of known data sets, and the letter of the right one. Pure; each raises RowRefused."""

from __future__ import annotations

import hashlib
import string
from typing import Any

from gymmesh_data.imports.items import RowRefused
from gymmesh_data.rollout import Json

_LETTERS = string.ascii_uppercase


def texts_of_labels(choices: Json) -> list[str]:
    """The texts of `{text: […], label: […]}`."""
    return _labelled(choices)[1]


def letter_of_label(choices: Json, label: str) -> str:
    """The letter, by place, of the choice that has a label, such as B for 2 of 1, 2, 3."""
    labels, texts = _labelled(choices)
    wanted = label.strip()
    if wanted in labels:
        return _LETTERS[labels.index(wanted)]
    raise RowRefused(
        f"is {label!r}, which is not one of the labels {', '.join(labels[: len(texts)])}"
    )


def _labelled(choices: Json) -> tuple[list[str], list[str]]:
    labels, texts = choices.get("label"), choices.get("text")
    if not isinstance(labels, list) or not isinstance(texts, list):
        raise RowRefused("must have the lists 'text' and 'label'")
    if len(labels) != len(texts):
        raise RowRefused(f"has {len(labels)} labels for {len(texts)} texts")
    named = [str(one).strip() for one in labels]
    if len(set(named)) != len(named):
        raise RowRefused("has the same label twice")
    return named, _checked(texts)


def letter_of_place(texts: list[str], place: int) -> str:
    """The letter of a place, from 0."""
    if not 0 <= place < len(texts):
        raise RowRefused(
            f"is {place}, which is out of range: the indices of the {len(texts)} choices start at 0"
        )
    return _LETTERS[place]


def letter_and_place(texts: list[str], letter: str, place: int) -> str:
    """The letter, where the place says the same."""
    found = letter_of_place(texts, place)
    if letter.strip().upper() != found:
        raise RowRefused(f"is {place}, the index of choice {found}, but the answer is {letter!r}")
    return found


def letter_of_text(texts: list[str], text: str) -> str:
    """The letter of a choice by its text."""
    if text.strip() not in texts:
        raise RowRefused("is not one of the choices")
    return _LETTERS[texts.index(text.strip())]


def in_fixed_order(question: str, *texts: str) -> list[str]:
    """Choices in an order that seems drawn by chance and is the same for each import."""

    def key(text: str) -> bytes:
        told = f"{question.strip()}\0{text}"
        return hashlib.sha256(told.encode("utf-8", "surrogatepass")).digest()

    return sorted(_checked([text.strip() for text in texts]), key=key)


def lettered(texts: list[str]) -> list[dict[str, str]]:
    """The choices as mcqa has them."""
    return [{letter: text} for letter, text in zip(_LETTERS, _checked(texts), strict=False)]


def option_lines(texts: list[str]) -> str:
    """The choices for the prompt, one a line."""
    checked = _checked(texts)
    return "\n".join(f"{letter}: {text}" for letter, text in zip(_LETTERS, checked, strict=False))


def _checked(texts: list[Any]) -> list[str]:
    """The choices; with two that are the same, a letter alone would tell right from wrong."""
    if not 2 <= len(texts) <= len(_LETTERS):
        raise RowRefused(f"has {len(texts)} choices; there must be 2 to {len(_LETTERS)}")
    if not all(isinstance(one, str) and one.strip() for one in texts):
        raise RowRefused("has a choice without a text")
    if len({one.strip() for one in texts}) < len(texts):
        raise RowRefused("has two equal choices")
    return texts
