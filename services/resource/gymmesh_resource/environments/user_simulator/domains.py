"""What the agent can do: the tools of the shop, or tools that the row itself describes.

Both work on a state that is plain JSON.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from gymmesh_resource.environments.user_simulator.shop import Shop, shop_state
from gymmesh_resource.environments.user_simulator.states import covers, patched
from gymmesh_resource.errors import TaskInvalid, ToolError
from gymmesh_resource.tools import BadArguments, Toolset, read_arguments
from gymmesh_responses import dumps, loads, tool_to_json


class Domain(ABC):
    """Tools over the state that the row gives."""

    _state: dict[str, Any]

    def start(self) -> dict[str, Any]:
        """A fresh copy of the row's state."""
        return copy.deepcopy(self._state)

    def offered(self) -> Sequence[Mapping[str, Any]]:
        """Tools for the session, beside the row's `responses_create_params.tools`."""
        return ()

    @abstractmethod
    def call(
        self, state: dict[str, Any], name: str, arguments: dict[str, Any]
    ) -> tuple[dict[str, Any], Any]:
        """The state after a call, and the answer. Raises `ToolError`."""


@cache
def _shop_tools() -> Toolset:
    return Toolset(Shop({}))


@cache
def _shop_documents() -> tuple[dict[str, Any], ...]:
    return tuple(loads(tool_to_json(tool.message)) for tool in _shop_tools().values())


class ShopTools(Domain):
    """The shop."""

    def __init__(self, state: Any) -> None:
        """Raises `TaskInvalid` for a state that is no shop's."""
        try:
            self._state = shop_state(state)
        except ValueError as error:
            raise TaskInvalid("state", f"is not the state of a shop: {error}") from None

    def offered(self) -> Sequence[Mapping[str, Any]]:
        return _shop_documents()

    def call(
        self, state: dict[str, Any], name: str, arguments: dict[str, Any]
    ) -> tuple[dict[str, Any], Any]:
        """Call a tool of the shop, which changes the state in place."""
        tools = _shop_tools()
        if name not in tools:
            raise ToolError(f"There is no tool {name[:64]!r} here.")
        tool = tools[name]
        try:
            checked = read_arguments(dumps(arguments), tool.arguments, tool.schema, name)
        except BadArguments as error:
            raise ToolError(str(error)) from None
        return state, getattr(Shop(state), name)(**checked)


class RowTools(Domain):
    """Tools that the row describes by their answers, in its key `tool_answers`.

    For each tool a list of cases, of which the first that fits is taken: `when`, arguments that
    must be given; `if`, what the state must have; `output`, the answer; `changes`, a merge patch
    of the state; `error` instead of these: the tool's own error.
    """

    _KEYS = frozenset(("when", "if", "output", "changes", "error"))

    def __init__(self, answers: Any, state: Any) -> None:
        """Raises `TaskInvalid`, which names the place."""
        if not isinstance(state, dict):
            raise TaskInvalid("state", "must be an object")
        if not isinstance(answers, dict):
            raise TaskInvalid(
                "tool_answers", "must be an object that maps each tool name to a list"
            )
        for name, cases in answers.items():
            self._check(f"tool_answers.{name}", cases)
        self._answers: dict[str, list[dict[str, Any]]] = answers
        self._state = state

    def call(
        self, state: dict[str, Any], name: str, arguments: dict[str, Any]
    ) -> tuple[dict[str, Any], Any]:
        """The first case that fits."""
        for case in self._answers.get(name, ()):
            if covers(arguments, case.get("when", {})) and covers(state, case.get("if", {})):
                if "error" in case:
                    raise ToolError(case["error"])
                return patched(state, case.get("changes", {})), case.get("output")
        raise ToolError(f"The tool {name[:64]} found nothing for these arguments.")

    def _check(self, place: str, cases: Any) -> None:
        if not isinstance(cases, list) or not all(isinstance(case, dict) for case in cases):
            raise TaskInvalid(place, "must be a list of objects")
        for at, case in enumerate(cases):
            here = f"{place}[{at}]"
            if unknown := sorted(set(case) - self._KEYS):
                raise TaskInvalid(here, f"has an unknown key {unknown[0]!r}")
            for key in ("when", "if", "changes"):
                if not isinstance(case.get(key, {}), dict):
                    raise TaskInvalid(f"{here}.{key}", "must be an object")
            if not isinstance(case.get("error", ""), str):
                raise TaskInvalid(f"{here}.error", "must be text")
