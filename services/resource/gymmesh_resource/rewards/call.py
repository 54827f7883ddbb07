"""One reward function, called by the names of its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from gymmesh_resource.errors import DefinitionError, TaskInvalid
from gymmesh_resource.rollout import Rollout
from gymmesh_resource.session import Session
from gymmesh_resource.task import Task
from gymmesh_runtime.text import shown_place

_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
# Parameters that receive an object, by their name or by their annotation.
_BY_KIND: Final = {"Session": "session", "Rollout": "rollout", "Task": "task"}


class RewardCall:
    """A reward function with its name and weight.

    Attributes:
        name: the component's.
        weight: the factor of its value in the reward.
        function: what is called with `arguments`.

    Raises DefinitionError for a function whose parameters cannot be filled.
    """

    def __init__(self, name: str, function: Callable[..., Any], weight: float) -> None:
        self.name = name
        self.weight = weight
        self.function = function
        self._answer = ""  # the parameter that receives it; empty: none does
        self._objects: dict[str, str] = {}  # the object's name by the parameter's
        self._keys: dict[str, bool] = {}  # of the row, and whether each is required
        self._rest = False
        for place, parameter in enumerate(inspect.signature(function).parameters.values()):
            self._add(place, parameter)

    def check(self, task: Task) -> None:
        """Raise TaskInvalid where the task row lacks a key that the function needs."""
        for key, required in self._keys.items():
            if required and key not in task.payload:
                raise TaskInvalid(
                    key, f"is missing. The reward function {self.name!r} reads this key"
                )

    def arguments(self, session: Session[Any], rollout: Rollout) -> dict[str, Any]:
        """The function's arguments by name. Raises TaskInvalid."""
        self.check(rollout.task)
        objects = {"session": session, "rollout": rollout, "task": rollout.task}
        given: dict[str, Any] = {name: objects[kind] for name, kind in self._objects.items()}
        if self._answer:
            given[self._answer] = rollout.answer
        payload = rollout.task.payload
        given.update((key, payload[key]) for key in self._keys if key in payload)
        if self._rest:
            given.update((key, value) for key, value in payload.items() if key not in given)
        return given

    def _add(self, place: int, parameter: inspect.Parameter) -> None:
        name, kind = parameter.name, _object_of(parameter)
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            self._rest = True
        elif parameter.kind not in _BY_NAME:
            raise DefinitionError(
                f"{self._place()}: the parameter {name!r} can't be passed by name. Write one "
                "named parameter for each key of the task row that the function reads."
            )
        elif kind:
            self._objects[name] = kind
        elif place == 0:
            self._answer = name
        else:
            self._keys[name] = parameter.default is inspect.Parameter.empty

    def _place(self) -> str:
        inner = inspect.unwrap(self.function)
        code = inner.__code__ if inspect.isfunction(inner) or inspect.ismethod(inner) else None
        place = f"{shown_place(code.co_filename, code.co_firstlineno)}: " if code else ""
        return f"{place}the reward function {self.name!r}"


def call_of(name: str, function: object, weight: float, where: str) -> RewardCall:
    """The call of what a configuration or a module names. Raises DefinitionError."""
    if not callable(function) or isinstance(function, type):
        raise DefinitionError(f"{where} is not a function that returns a reward.")
    try:
        return RewardCall(name, function, weight)
    except DefinitionError:
        raise
    except (ValueError, TypeError) as error:  # a builtin without a signature
        raise DefinitionError(
            f"{where}: the parameters of the function can't be read ({error})."
        ) from None


def _object_of(parameter: inspect.Parameter) -> str:
    """Which object a parameter receives; empty: none."""
    if parameter.name in _BY_KIND.values():
        return parameter.name
    annotation = parameter.annotation
    shown = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return _BY_KIND.get(shown.partition("[")[0].rpartition(".")[2], "")
