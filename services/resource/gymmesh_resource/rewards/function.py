"""An environment made of a plain function: no tools, no state, and the function's reward."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar

from gymmesh_resource.environment import Environment
from gymmesh_resource.rewards.marking import mark_of


class FunctionEnvironment(Environment[None]):
    """Base of the classes that `function_environment` makes."""

    function: ClassVar[Callable[..., Any]]

    def __init__(self, *, reward_range: tuple[float, float] = (0.0, 1.0)) -> None:
        """reward_range: the least and the most that the reward may be."""
        self.reward_range = reward_range

    def reward_functions(self) -> Mapping[str, tuple[Callable[..., Any], float]]:
        function = type(self).function
        mark = mark_of(function)
        if mark is not None:
            return {mark.name: (function, mark.weight)}
        return {_name_of(function): (function, 1.0)}


@cache
def function_environment(function: Callable[..., Any]) -> type[FunctionEnvironment]:
    """The environment of a function; its docstring describes it, and `examples` of its module are
    the example tasks.
    """
    name = _name_of(function)
    module = sys.modules.get(function.__module__)
    members = {
        "__doc__": function.__doc__ or f"Rewards answers with the function {name}.",
        "__module__": function.__module__,
        "function": staticmethod(function),
        "examples": vars(module).get("examples") if module else None,
    }
    return type(name, (FunctionEnvironment,), members)


def _name_of(function: Callable[..., Any]) -> str:
    # A callable object has a class instead of a name.
    return str(getattr(function, "__name__", type(function).__name__))
