"""An environment's reward functions with their weights, and their weighted sum. Pure.

If a class has reward functions and its own `verify`, `verify` is the part of that name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from gymmesh_resource.config import RewardConfig
from gymmesh_resource.environment import Environment
from gymmesh_resource.errors import DefinitionError, WrongResult
from gymmesh_resource.rewards.call import RewardCall, call_of
from gymmesh_resource.task import Task
from gymmesh_resource.verdicts import Component, Outcome, Pending, Skipped, Verdict, reward_number
from gymmesh_runtime.config import nearest

VERIFY: Final = "verify"

_Function: TypeAlias = Callable[..., Any]
_Load: TypeAlias = Callable[[str], object]


class Rewards:
    """The parts of a rollout's reward. The reward is their weighted sum.

    Attributes:
        calls: the reward functions, in the order of the class and then of the configuration.
        verify_weight: of the class's `verify`; None: it has none, or another function replaced it.
    """

    def __init__(
        self,
        environment: Environment[Any],
        configured: Mapping[str, float | RewardConfig],
        load: _Load,
    ) -> None:
        """Args:
            configured: `rewards` of the environment's configuration.
            load: returns what `package.module:function` or `file.py:function` names.

        Raises DefinitionError for a reward that cannot be meant or called.
        """
        parts: dict[str, tuple[_Function | None, float]] = {}
        if type(environment).verify is not Environment.verify:
            parts[VERIFY] = (None, 1.0)
        for name, own in environment.reward_functions().items():
            if name in parts:
                raise DefinitionError(
                    f"{type(environment).__name__} has two rewards called {name!r}. Rename one of "
                    "these rewards."
                )
            parts[name] = own
        for name, one in configured.items():
            given = one if isinstance(one, RewardConfig) else RewardConfig(weight=one)
            parts[name] = _changed(name, given, parts, load)
        self.calls: list[RewardCall] = []
        self.verify_weight: float | None = None
        for name, (function, weight) in parts.items():
            if not math.isfinite(weight):
                raise DefinitionError(f"rewards.{name}: the weight {weight} is not finite.")
            if function is None:
                self.verify_weight = weight
            else:
                self.calls.append(call_of(name, function, weight, f"the reward {name!r}"))
        self._widen(environment)

    @property
    def summed(self) -> bool:
        """Whether the reward is a sum of parts, and not just the verdict of `verify`."""
        return bool(self.calls) or self.verify_weight not in (None, 1.0)

    def check(self, task: Task) -> None:
        """Raise TaskInvalid for a task row that lacks what a reward function reads."""
        for call in self.calls:
            call.check(task)

    def total(self, values: Mapping[str, object], verified: object = None) -> Outcome:
        """The verdict of all parts.

        Args:
            values: what each of `calls` returned, by name: a number, a bool, or an outcome.
            verified: what `verify` returned, where `verify_weight` is not None.

        If a part is Pending or Skipped, the whole verdict is, too. Raises WrongResult.
        """
        components: dict[str, float | Component] = {}
        evidence: dict[str, Any] = {}
        if self.verify_weight is not None:
            if isinstance(verified, Pending | Skipped):
                return verified
            if isinstance(verified, Verdict):
                components.update(verified.components)
                evidence.update(verified.evidence)
            value = _value(VERIFY, verified, None)
            components[VERIFY] = Component(value, self.verify_weight)
        for call in self.calls:
            outcome = values[call.name]
            if isinstance(outcome, Pending | Skipped):
                return outcome
            if isinstance(outcome, Verdict) and outcome.evidence:
                evidence[call.name] = dict(outcome.evidence)
            value = _value(call.name, outcome, call.function)
            components[call.name] = Component(value, call.weight)
        parts = {
            name: part
            for name, part in components.items()
            if isinstance(part, Component) and (name == VERIFY or name in values)
        }
        reward = math.fsum(part.value * (part.weight or 0.0) for part in parts.values())
        said = ", ".join(f"{name} {part.value:g}" for name, part in parts.items())
        lines = [verified.explanation] if isinstance(verified, Verdict) else []
        lines += [one.explanation for one in values.values() if isinstance(one, Verdict)]
        return Verdict(reward, components, evidence, "; ".join(filter(None, lines)) or said)

    def _widen(self, environment: Environment[Any]) -> None:
        """Where the class declares no range: that of parts from 0 to 1, each times its weight."""
        if not self.summed or environment.reward_range != Environment.reward_range:
            return
        weights = [call.weight for call in self.calls]
        weights += [] if self.verify_weight is None else [self.verify_weight]
        least = math.fsum(weight for weight in weights if weight < 0)
        most = math.fsum(weight for weight in weights if weight > 0)
        environment.reward_range = (least, max(1.0, most))


def _changed(
    name: str,
    given: RewardConfig,
    parts: Mapping[str, tuple[_Function | None, float]],
    load: _Load,
) -> tuple[_Function | None, float]:
    """A reward as the configuration has it."""
    function, weight = parts.get(name, (None, 1.0))
    if given.use:
        found = load(given.use)
        if not callable(found) or isinstance(found, type):
            raise DefinitionError(f"rewards.{name}: {given.use!r} is not a function.")
        function = found
    elif name not in parts:
        raise DefinitionError(
            f"rewards.{name}: the environment has no reward {name!r}; {nearest(name, parts)}. "
            f"To add a reward, name its function: {{use: file.py:function}}"
        )
    return function, weight if given.weight is None else given.weight


def _value(name: str, outcome: object, function: _Function | None) -> float:
    given = outcome.reward if isinstance(outcome, Verdict) else outcome
    if isinstance(given, bool):
        return float(given)
    try:
        return reward_number(given, f"the reward {name!r}")
    except WrongResult as error:
        raise WrongResult(str(error), function) from None
