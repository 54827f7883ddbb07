"""`@reward`: a method, or a function of a module, that gives one named part of the reward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar, overload

IS_FACE = True  # see tools/import_faces.py

F = TypeVar("F", bound=Callable[..., Any])
_MARK: Final = "__gymmesh_reward__"


@dataclass(frozen=True, slots=True)
class RewardMark:
    """What `@reward` says of a function."""

    name: str
    weight: float


@overload
def reward(function: F, /) -> F: ...
@overload
def reward(*, name: str | None = None, weight: float = 1.0) -> Callable[[F], F]: ...
def reward(
    function: F | None = None, /, *, name: str | None = None, weight: float = 1.0
) -> F | Callable[[F], F]:
    """Make a method one of the reward functions of its class: `@reward` or `@reward(weight=0.5)`.

    The reward of a rollout is the sum of the functions' values, each times its weight. Each value
    is a component of the verdict, named after the function or `name`. The configuration of the
    environment can change a weight or replace a function (`rewards`).

    A parameter named `session`, `rollout` or `task` receives that object. The first parameter of
    another name receives the model's last message, as text. Every other parameter receives the
    task row's key of its name, or its default where the row has no such key.
    """

    def mark(function: F) -> F:
        setattr(function, _MARK, RewardMark(name or function.__name__, weight))
        return function

    return mark if function is None else mark(function)


def mark_of(function: object) -> RewardMark | None:
    """What `@reward` said of a function; None: it is not marked."""
    found = vars(function).get(_MARK) if hasattr(function, "__dict__") else None
    return found if isinstance(found, RewardMark) else None


def marked_methods(kind: type) -> dict[str, RewardMark]:
    """Marks by attribute, base classes first. A subclass unmarks one by `name = None`, and
    replaces one by a method of that name, which keeps the mark where it has none of its own.
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
