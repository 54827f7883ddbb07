"""`@reward`: marks a method or a module's function that returns one named part of the reward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar, overload

IS_FACE = True  # see tools/import_faces.py

F = TypeVar("F", bound=Callable[..., Any])
_MARK: Final = "__gymmesh_reward__"


@dataclass(frozen=True, slots=True)
class RewardMark:
    """The arguments of a function's `@reward`."""

    name: str
    weight: float


@overload
def reward(function: F, /) -> F: ...
@overload
def reward(*, name: str | None = None, weight: float = 1.0) -> Callable[[F], F]: ...
def reward(
    function: F | None = None, /, *, name: str | None = None, weight: float = 1.0
) -> F | Callable[[F], F]:
    """Makes a method one of the reward functions of its class: `@reward` or `@reward(weight=0.5)`.

    The reward of a rollout is the sum of the functions' values, each times its weight. Each value
    is a component of the verdict, named after the function or `name`. The configuration of the
    environment can change a weight or replace a function (`rewards`).

    A parameter named `session`, `rollout` or `task` receives that object. The first parameter with
    any other name receives the model's last message, as text. Every other parameter receives the
    value of the task row's key of that name, or its default if the row does not have the key.
    """

    def mark(function: F) -> F:
        setattr(function, _MARK, RewardMark(name or function.__name__, weight))
        return function

    return mark if function is None else mark(function)


def mark_of(function: object) -> RewardMark | None:
    """The mark that `@reward` set on a function; None: it is not marked."""
    found = vars(function).get(_MARK) if hasattr(function, "__dict__") else None
    return found if isinstance(found, RewardMark) else None


def marked_methods(kind: type) -> dict[str, RewardMark]:
    """Marks by attribute, base classes first. In a subclass, `name = None` removes a mark, and a
    method of the same name replaces the function; it keeps the mark unless it has its own.
    """
    found: dict[str, RewardMark] = {}
    for base in reversed(kind.__mro__):
        for attribute, value in vars(base).items():
            mark = mark_of(value)
            if mark is not None:
                found[attribute] = mark
            elif attribute in found and not callable(value):
                del found[attribute]
    return found
