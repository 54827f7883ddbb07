"""Which known data set some rows are of, and what to ask where they are of none. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from gymmesh_data.imports.datasets.recipes import Recipe, recipes
from gymmesh_data.rollout import Json

_VALUE: Final = 48
_MOST_COLUMNS: Final = 30
_NEAREST: Final = 3
_PROMPTS: Final = ("prompt", "question", "problem", "input", "query", "instruction", "text")
_ANSWERS: Final = ("answer", "expected", "solution", "target", "label", "truth", "result", "output")


def recipe_of(rows: Sequence[Json]) -> Recipe | None:
    """The recipe that most of a file's first rows fit; of several, the one that says most on
    them. None where no recipe fits half of them.
    """
    best: tuple[tuple[int, int, int], Recipe] | None = None
    for recipe in recipes():
        fitting = sum(_fits(recipe, row) for row in rows)
        if not fitting or 2 * fitting < len(rows):
            continue
        likes = sum(bool(shape.like) for shape in recipe.columns.values())
        rank = len(recipe.columns), likes, fitting
        if best is None or rank > best[0]:
            best = rank, recipe
    return best[1] if best else None


def _fits(recipe: Recipe, row: Json) -> bool:
    if recipe.problem(row):
        return False
    for name, shape in recipe.columns.items():
        value = row.get(shape.column_in(name, row))
        if shape.like and not (isinstance(value, str) and re.search(shape.like, value)):
            return False
    return True


def unknown_shape(row: Json) -> str:
    """Lines on a row that no recipe fits: its columns, the nearest recipes, a guess, a question.
    One sentence on a row that is a task already.
    """
    if "responses_create_params" in row:
        return (
            "has rows of a gymmesh task file (they have the key responses_create_params), so there "
            "is nothing to import. Pass the file to gym-cli collect --input"
        )
    lines = ["matches no known data set. Columns of the file, with the values of the first row:"]
    shown = list(row.items())[:_MOST_COLUMNS]
    width = max((len(_short(key)) for key, _ in shown), default=0)
    lines += [
        f"  {_short(key):<{width}}  {_kind(value):<8} {_short(value)}" for key, value in shown
    ]
    if len(row) > len(shown):
        lines.append(f"  and {len(row) - len(shown)} more columns")
    lines += ["Nearest known data sets:", *(f"  {one}" for one in _nearest(row))]
    lines.append(_question(row))
    return "\n".join(lines)


def _nearest(row: Json) -> list[str]:
    def share(recipe: Recipe) -> float:
        return sum(_has(recipe, name, row) for name in recipe.needed) / len(recipe.needed)

    ranked = sorted(recipes(), key=share, reverse=True)[:_NEAREST]
    found = []
    for recipe in ranked:
        missing = [
            f"{name} ({recipe.columns[name].words})"
            for name in recipe.needed
            if not _has(recipe, name, row)
        ]
        lacking = (
            f"lacks {', '.join(missing)}"
            if missing
            else ("has all columns, but the values have a different format")
        )
        found.append(f"{recipe.name} ({recipe.title}): {lacking}")
    return found


def _has(recipe: Recipe, name: str, row: Json) -> bool:
    shape = recipe.columns[name]
    column = shape.column_in(name, row)
    return column in row and not shape.problem(row[column])


def _question(row: Json) -> str:
    """Which columns are the prompt and the answer, with a guess and the command."""
    texts = [key for key, value in row.items() if isinstance(value, str) and value.strip()]
    prompt = _first(texts, _PROMPTS) or max(texts, key=lambda key: len(row[key]), default="")
    plain = [
        key
        for key, value in row.items()
        if key != prompt and isinstance(value, str | int | float) and value != ""
    ]
    answer = _first(plain, _ANSWERS)
    columns = f"--column input={_word(prompt or 'NAME')}"
    columns += f" --column expected_answer={_word(answer or 'NAME')}"
    command = f"--format hf {columns} --env NAME"
    if prompt and answer:
        told = f"Is the prompt in the column {prompt!r} and the answer in the column {answer!r}?"
    elif prompt:
        told = f"Is the prompt in the column {prompt!r}, and which column has the answer?"
    else:
        told = "Which columns have the prompt and the answer?"
    return f"{told} Then add to the command: {command}"


def _first(keys: Sequence[str], words: Sequence[str]) -> str:
    return next((key for word in words for key in keys if word in key.lower()), "")


def _word(name: str) -> str:
    """A column's name for a shell."""
    plain = re.fullmatch(r"[\w.-]+", name)
    return name if plain else "'" + name.replace("'", "'\\''") + "'"


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "text"
        case list():
            return "list"
    return "object"


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= _VALUE else f"{text[: _VALUE - 1]}…"
