"""Reads single keys of task rows, for several environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from gymmesh_resource import Task, TaskInvalid

T = TypeVar("T", bound=str)
V = TypeVar("V")


def filled_text(task: Task, field: str) -> str:
    """A required text that is not blank. Raises `TaskInvalid`."""
    text: str = task.require(field, str)
    if not text.strip():
        raise TaskInvalid(field, "is empty")
    return text


def optional(task: Task, field: str, kind: type[V]) -> V | None:
    """A key's value of that type; None if the row lacks the key. Raises `TaskInvalid`."""
    if field not in task.payload:
        return None
    value: V = task.require(field, kind)
    return value


def text_or_none(task: Task, field: str) -> str | None:
    """A key's text; None if the row lacks the key or it is null. Raises `TaskInvalid`."""
    value = task.payload.get(field)
    if value is not None and not isinstance(value, str):
        raise TaskInvalid(field, "must be text or null")
    return value


def one_of(choices: Sequence[T], value: object, field: str) -> T:
    """The choice that a key's value is. Raises `TaskInvalid`, which names all of them."""
    for choice in choices:
        if choice == value:
            return choice
    raise TaskInvalid(field, f"must be one of {', '.join(choices)}")
