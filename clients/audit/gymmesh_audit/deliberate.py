"""Findings that an environment's author intends: a list with reasons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import msgspec

from gymmesh_audit.judgement import Weakness
from gymmesh_runtime.config import ConfigError

#: The file's name beside the module of an environment's class.
FILE: Final = "deliberate.yaml"


class Meant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of the list. attack: `kind/name` as in reports. task: a task's id. Both may contain
    the wildcards * and ?.

    options: the entry applies only if the environment is configured with these options. optional:
    the entry may have no finding, because tasks are generated.
    """

    attack: str
    reason: str
    task: str = "*"
    options: Mapping[str, Any] = {}
    optional: bool = False

    def __str__(self) -> str:
        at = "" if self.task == "*" else f" on {self.task}"
        return f"{self.attack}{at}"

    def covers(self, found: Weakness) -> bool:
        """Whether the entry applies to a finding."""
        return fnmatchcase(found.key, self.attack) and fnmatchcase(found.task_id, self.task)

    def applies_to(self, options: Mapping[str, Any]) -> bool:
        """Whether the entry applies to an environment with these options."""
        return all(key in options and options[key] == self.options[key] for key in self.options)


def read_deliberate(path: Path) -> list[Meant]:
    """The entries of a YAML file, a list of objects with the fields of `Meant`.

    Raises ConfigError.
    """
    try:
        return msgspec.yaml.decode(path.read_bytes(), type=list[Meant])
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"{path}: {error}. Each entry needs the keys `attack` and `reason`. The keys `task`, "
            "`options` and `optional` may be omitted"
        ) from None


def with_reasons(found: Iterable[Weakness], meant: Sequence[Meant]) -> list[Weakness]:
    """The findings. A deliberate finding has the reason of its entry."""
    return [replace(one, reason=_reason(one, meant)) for one in found]


def idle(found: Sequence[Weakness], meant: Sequence[Meant]) -> list[Meant]:
    """The entries without a finding, except optional entries."""
    return [one for one in meant if not one.optional and not any(map(one.covers, found))]


def _reason(found: Weakness, meant: Sequence[Meant]) -> str:
    return next((one.reason for one in meant if one.covers(found)), "")
