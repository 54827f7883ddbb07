"""Multiple choice rows of public data sets, as tasks of the environment mcqa. Pure.

| shape                                                      | as in                          |
|------------------------------------------------------------|--------------------------------|
| `choices: {text: […], label: […]}`, `answerKey`            | ARC, OpenBookQA, CommonsenseQA |
| `choices` or `options`, a list; `answer`, a place or letter | MMLU, MMLU-Pro, RACE          |
| `options`, texts by letter; `answer_idx` or `answer`       | MedQA                          |
| `endings`, `label`                                         | HellaSwag                      |
| `option1`, `option2`, …; `answer`                          | WinoGrande                     |
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import Any, Final

from gymmesh_data.imports.items import RowRefused
from gymmesh_data.rollout import Json

_QUESTIONS: Final = (
    *("question", "question_stem", "query", "prompt", "input", "problem", "ctx", "sentence"),
)
_CONTEXTS: Final = ("article", "passage", "context")
_LISTS: Final = ("choices", "options", "endings")
_ANSWERS: Final = (
    *("answerKey", "answer_index", "answer_idx", "answer", "correct_answer", "target", "label"),
)
_ASKED: Final = "Put the letter of the right answer alone inside \\boxed{}."


@dataclass(frozen=True, slots=True)
class ChoiceRow:
    """A question with options.

    Attributes:
        prompt: the question, its options by letter, and the form of the answer.
        options: in the form of the environment mcqa: a list of objects from letter to text.
        expected: the letter of the right option.
        used: the columns that these values were read from.
    """

    prompt: str
    options: list[dict[str, str]]
    expected: str
    used: frozenset[str]


def choice_row(row: Json) -> ChoiceRow | None:
    """The question of a row with one of the shapes above; None for any other row.

    Raises RowRefused if the row's right option cannot be found.
    """
    found = _options(row)
    question = next((key for key in _QUESTIONS if _is_said(row.get(key))), None)
    if found is None or question is None:
        return None
    labels, texts, columns = found
    answer = next((key for key in _ANSWERS if row.get(key) not in (None, "")), None)
    if answer is None:
        raise RowRefused(
            f"has options, but no column that names the right option ({', '.join(_ANSWERS)})"
        )
    place = _place(row[answer], labels, texts)
    if place is None:
        raise RowRefused(f"{answer}: {row[answer]!r} is not one of the row's {len(texts)} options")
    letters = string.ascii_uppercase[: len(texts)]
    context = [row[key] for key in _CONTEXTS if isinstance(row.get(key), str) and row[key].strip()]
    lines = [f"{letter}: {text}" for letter, text in zip(letters, texts, strict=True)]
    prompt = "\n".join([*context, row[question], _ASKED, *lines])
    options = [{letter: text} for letter, text in zip(letters, texts, strict=True)]
    return ChoiceRow(prompt, options, letters[place], frozenset((question, answer, *columns)))


def _options(row: Json) -> tuple[list[str], list[str], list[str]] | None:
    """The options' labels and texts, and their columns."""
    for key in _LISTS:
        value = row.get(key)
        if isinstance(value, dict):
            if isinstance(value.get("text"), list) and isinstance(value.get("label"), list):
                labels, texts = list(map(str, value["label"])), value["text"]
            else:
                labels, texts = list(value), list(value.values())
        elif isinstance(value, list):
            texts, labels = value, list(string.ascii_uppercase[: len(value)])
        else:
            continue
        if _are_texts(texts) and len(labels) == len(texts):
            return labels, texts, [key]
    numbered = [key for number in range(1, 27) if (key := f"option{number}") in row]
    texts = [row[key] for key in numbered]
    if _are_texts(texts):
        return [str(number + 1) for number in range(len(texts))], texts, numbered
    return None


def _is_said(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _are_texts(texts: Any) -> bool:
    return 2 <= len(texts) <= 26 and all(isinstance(text, str) for text in texts)


def _place(answer: Any, labels: list[str], texts: list[str]) -> int | None:
    """Which option an answer names: by label, place from 0, or its text."""
    if isinstance(answer, bool):
        return None
    if isinstance(answer, int):
        return answer if 0 <= answer < len(texts) else None
    if not isinstance(answer, str):
        return None
    said = answer.strip()
    upper = [label.upper() for label in labels]
    if said.upper() in upper:
        return upper.index(said.upper())
    if said in texts:
        return texts.index(said)
    if len(said) == 1 and said.upper() in string.ascii_uppercase[: len(texts)]:
        return string.ascii_uppercase.index(said.upper())
    return int(said) if said.isdecimal() and int(said) < len(texts) else None
