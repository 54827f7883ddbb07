"""Cases as data: read from `case_files/*.yaml`, checked when read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from gymmesh_conformance.cases.matching import load_yaml

#: The suites for servers; that for collectors is in `collectors`.
SUITES: Final = ("resource", "model", "agent", "discovery", "sandbox")
_FOLDER: Final = Path(__file__).parents[1] / "case_files"
_KEYS: Final = {"name", "rule", "needs", "world", "steps", "seen"}


class CaseError(ValueError):
    """A case file is not right; the sentence says where."""


@dataclass(frozen=True)
class Case:
    """One case.

    `rule` is what the contract asks for. `needs` are variables that the target must have set
    (`not x`: must not). `world` is the script for the suite's own services, `seen` what they
    must have been asked in the end.
    """

    suite: str
    name: str
    rule: str
    steps: list[dict[str, Any]]
    needs: tuple[str, ...] = ()
    world: Mapping[str, Any] = field(default_factory=dict)
    seen: Mapping[str, Any] = field(default_factory=dict)

    def lacks(self, variables: Mapping[str, Any]) -> str:
        """The first need that a target does not meet, or an empty string."""
        for need in self.needs:
            name = need.removeprefix("not ")
            if bool(variables.get(name)) == (name != need):
                return need
        return ""


@cache
def load_cases(suite: str) -> tuple[Case, ...]:
    """The cases of a suite for servers. Raises CaseError."""
    return read_cases(suite, sorted(_FOLDER.glob(f"{suite}*.yaml")))


def read_cases(suite: str, paths: Iterable[Path]) -> tuple[Case, ...]:
    """The cases in files. Raises CaseError."""
    found = []
    for path in paths:
        found += [_case(suite, path, data) for data in load_yaml(path)["cases"]]
    names = [case.name for case in found]
    double = {name for name in names if names.count(name) > 1}
    if double:
        raise CaseError(f"the suite '{suite}' has two cases named {sorted(double)}")
    return tuple(found)


def _case(suite: str, path: Path, data: Mapping[str, Any]) -> Case:
    name = data.get("name", "?")
    unknown = set(data) - _KEYS
    if unknown or not {"name", "rule", "steps"} <= set(data):
        raise CaseError(f"{path.name}, case '{name}': wrong or missing keys {sorted(unknown)}")
    return Case(
        suite,
        name,
        " ".join(data["rule"].split()),
        data["steps"],
        tuple(data.get("needs", ())),
        data.get("world", {}),
        data.get("seen", {}),
    )
