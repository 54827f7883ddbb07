"""Recipes: what is known of a public data set. Pure, but for reading recipes.toml."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from string import Template
from typing import Any, Final, Literal, TypeAlias

import msgspec

from gymmesh_client.problems import UserError
from gymmesh_data.imports.datasets.making import TRANSFORMATIONS
from gymmesh_data.rollout import Json
from gymmesh_runtime.config import nearest

ColumnKind: TypeAlias = Literal[
    "text", "integer", "texts", "list", "objects", "object", "json", "any", "absent"
]


class ColumnShape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A column of a data set.

    kind: what its values are; `json` is JSON text, `absent` a column that must not be there.
    like: a regular expression that is found in its values; only to recognise the data set.
    or: another name of the column. optional: rows may lack it. empty: a text may be blank.
    """

    kind: ColumnKind
    like: str = ""
    other: str = msgspec.field(name="or", default="")
    optional: bool = False
    empty: bool = False

    def column_in(self, name: str, row: Json) -> str:
        """The column's name in a row."""
        return self.other if self.other and name not in row else name

    def problem(self, value: Any) -> str:
        """What is wrong with a value, as the end of a sentence on it; empty for a good one."""
        if self.kind == "absent":
            return "" if value is None else "must not be set"
        if value is None:
            return "" if self.optional else "is missing"
        if self.kind == "text" and isinstance(value, str) and not (value.strip() or self.empty):
            return "is empty"
        return "" if _IS[self.kind](value) else f"must be {_WORDS[self.kind]}"

    @property
    def words(self) -> str:
        """Its kind in words."""
        return _WORDS[self.kind]


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


_IS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "text": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int,
    "texts": _is_texts,
    "list": lambda value: isinstance(value, list),
    "objects": _is_objects,
    "object": lambda value: isinstance(value, dict),
    "json": lambda value: isinstance(value, str) and value.lstrip()[:1] in ("[", "{"),
    "any": lambda value: True,
}
_WORDS: Final = {
    "text": "a text",
    "integer": "a whole number",
    "texts": "a list of texts",
    "list": "a list",
    "objects": "a list of objects",
    "object": "an object",
    "json": "JSON text",
    "any": "any value",
    "absent": "absent",
}


class MadeValue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value made from columns, or from values made earlier.

    by: the transformation. of: the arguments, by name. hidden: whether it is not a key of the task.
    """

    by: str
    of: list[str]
    hidden: bool = False


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A data set.

    name: the name for `--dataset`. title, about: texts for people. columns: the columns by which it
    is recognised. environment: the environment that judges its tasks; refused instead: why none
    does, and what to do. prompt: a template of the prompt; messages instead: the made value with
    the conversation. tools: the made value with the tools. task_id: a template of the id; empty:
    derived from the content. made: values in the order of making. set: keys that all tasks have.
    keep: columns that stay keys of the task although values are made from them.
    text_answers: expected answers may be long texts. differs: from the data set's own scoring.
    tried: how many rows in its columns the tests import and judge.
    """

    name: str
    title: str
    about: str
    columns: dict[str, ColumnShape]
    environment: str = ""
    refused: str = ""
    prompt: str = ""
    messages: str = ""
    tools: str = ""
    task_id: str = ""
    made: dict[str, MadeValue] = {}
    set: dict[str, Any] = {}
    keep: list[str] = []
    text_answers: bool = False
    differs: str = ""
    tried: int = 0

    def __post_init__(self) -> None:
        if bool(self.environment) == bool(self.refused):
            raise ValueError(
                f"{self.name}: needs exactly one of the keys `environment` and `refused`"
            )
        if self.environment and bool(self.prompt) == bool(self.messages):
            raise ValueError(f"{self.name}: needs exactly one of the keys `prompt` and `messages`")
        known = set(self.columns)
        for name, made in self.made.items():
            if made.by not in TRANSFORMATIONS:
                raise ValueError(f"{self.name}.made.{name}.by: {made.by} is not a transformation")
            if missing := set(made.of) - known:
                raise ValueError(
                    f"{self.name}.made.{name}.of: there is no column or value {min(missing)!r}"
                )
            known.add(name)
        named = {*self.template_names, *self.id_names, *self.keep}
        named |= {one for one in (self.messages, self.tools) if one}
        if missing := named - known:
            raise ValueError(f"{self.name}: there is no {min(missing)}")
        for shape in self.columns.values():
            re.compile(shape.like)

    @property
    def needed(self) -> list[str]:
        """The columns that rows must have."""
        return [
            name
            for name, shape in self.columns.items()
            if not shape.optional and shape.kind != "absent"
        ]

    @property
    def used(self) -> frozenset[str]:
        """The columns that something is made of."""
        read = {name for made in self.made.values() for name in made.of}
        return frozenset(read | {*self.template_names, *self.id_names})

    @property
    def template_names(self) -> list[str]:
        """The columns used in the prompt."""
        return Template(self.prompt).get_identifiers()

    @property
    def id_names(self) -> list[str]:
        """The columns used in the task's id."""
        return Template(self.task_id).get_identifiers()

    def problem(self, row: Json) -> str:
        """Which column of a row does not fit, and why; empty where all do."""
        for name, shape in self.columns.items():
            column = shape.column_in(name, row)
            if problem := shape.problem(row.get(column)):
                return f"{column}: {problem} in rows of {self.title}"
        return ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    recipe: list[Recipe]


@cache
def recipes() -> tuple[Recipe, ...]:
    """All recipes, in the order of their file."""
    text = (resources.files(__package__) / "recipes.toml").read_text(encoding="utf-8")
    return tuple(msgspec.toml.decode(text, type=_File).recipe)


def recipe_named(name: str) -> Recipe:
    """A recipe by its name. Raises UserError if there is none."""
    found = {one.name: one for one in recipes()}
    if name not in found:
        raise UserError(f"no data set is named {name!r}; {nearest(name, found)}")
    return found[name]
