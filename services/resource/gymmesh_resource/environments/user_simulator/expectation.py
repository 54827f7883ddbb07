"""The expected result of a conversation, and whether it was reached. Pure.

Invariant: this module reads only the state and the model's own messages, never the simulated user's
claims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gymmesh_resource.environments.user_simulator.domains import Domain
from gymmesh_resource.environments.user_simulator.facts import normalised, spoken, states
from gymmesh_resource.environments.user_simulator.states import differences, patched
from gymmesh_resource.errors import TaskInvalid, ToolError

_KEYS = frozenset(("state", "actions", "say", "dont_say", "criteria"))


@dataclass(frozen=True, slots=True)
class Findings:
    """`differences`: places of the state; `missing` and `leaked`: facts as the row has them.

    `missing_share` is the part of the required facts that is missing, 0.0 to 1.0.
    """

    differences: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    missing_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Expectation:
    """From the row's key `expected`.

    `state`: the whole final state, or None where it does not matter. `say`: facts that the model
    must state, each with the forms that count; `dont_say`: such as it must not. `criteria`: what
    a judge is asked.
    """

    state: dict[str, Any] | None
    say: tuple[tuple[str, ...], ...] = ()
    dont_say: tuple[tuple[str, ...], ...] = ()
    criteria: str = ""

    @property
    def asked(self) -> list[str]:
        """The parts of the verdict that the row asks for."""
        wanted = {
            "state": self.state is not None,
            "said": bool(self.say),
            "unsaid": bool(self.dont_say),
            "judge": bool(self.criteria),
        }
        return [name for name, is_wanted in wanted.items() if is_wanted]

    def findings(self, state: dict[str, Any], messages: Sequence[str]) -> Findings:
        """Compare the final state, and the model's messages."""
        said = [normalised(spoken(message)) for message in messages]
        missing = [forms[0] for forms in self.say if not _stated(said, forms)]
        return Findings(
            differences=[] if self.state is None else differences(self.state, state),
            missing=missing,
            leaked=[forms[0] for forms in self.dont_say if _stated(said, forms)],
            missing_share=len(missing) / len(self.say) if self.say else 0.0,
        )


def read_expectation(value: Any, domain: Domain) -> Expectation:
    """The row's `expected`. Raises `TaskInvalid`, which names the key."""
    if not isinstance(value, Mapping) or not value:
        raise TaskInvalid(
            "expected",
            f"must be an object with at least one of the keys {', '.join(sorted(_KEYS))}",
        )
    if unknown := sorted(set(value) - _KEYS):
        raise TaskInvalid(
            f"expected.{unknown[0]}", f"is unknown; the known keys are {', '.join(sorted(_KEYS))}"
        )
    criteria = value.get("criteria", "")
    if not isinstance(criteria, str):
        raise TaskInvalid("expected.criteria", "must be text")
    return Expectation(
        state=_state(value, domain),
        say=_facts(value, "say"),
        dont_say=_facts(value, "dont_say"),
        criteria=criteria.strip(),
    )


def _state(value: Mapping[str, Any], domain: Domain) -> dict[str, Any] | None:
    """The row's state after the actions, and with the patch."""
    if "state" not in value and "actions" not in value:
        return None
    patch, actions = value.get("state", {}), value.get("actions", [])
    if not isinstance(patch, dict):
        raise TaskInvalid(
            "expected.state", "must be an object: a JSON merge patch of the row's state"
        )
    if not isinstance(actions, list):
        raise TaskInvalid("expected.actions", "must be a list of tool calls")
    state = domain.start()
    for at, action in enumerate(actions):
        place = f"expected.actions[{at}]"
        if not isinstance(action, dict) or set(action) - {"name", "arguments"}:
            raise TaskInvalid(place, "must be an object with 'name' and 'arguments'")
        name, arguments = action.get("name"), action.get("arguments", {})
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise TaskInvalid(place, "must have text under 'name' and an object under 'arguments'")
        try:
            state, _ = domain.call(state, name, arguments)
        except ToolError as error:
            raise TaskInvalid(place, f"is rejected: {error}") from None
    merged: dict[str, Any] = patched(state, patch)
    return merged


def _facts(value: Mapping[str, Any], key: str) -> tuple[tuple[str, ...], ...]:
    facts = value.get(key, [])
    if not isinstance(facts, list):
        raise TaskInvalid(f"expected.{key}", "must be a list")
    found = []
    for at, forms in enumerate(facts):
        listed = [forms] if isinstance(forms, str) else forms
        if (
            not isinstance(listed, list)
            or not listed
            or not all(isinstance(form, str) and normalised(form) for form in listed)
        ):
            raise TaskInvalid(
                f"expected.{key}[{at}]", "must be text, or a list of texts that say the same fact"
            )
        found.append(tuple(listed))
    return tuple(found)


def _stated(said: Sequence[str], forms: Sequence[str]) -> bool:
    wanted = [normalised(form) for form in forms]
    return any(states(message, wanted) for message in said)
