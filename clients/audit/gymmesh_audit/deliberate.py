"""What an environment means to pay, or not to pay: a list with reasons that its author keeps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import msgspec

from gymmesh_runtime.config import ConfigError

from .judgement import Weakness

#: The file's name beside the module of an environment's class.
FILE: Final = "deliberate.yaml"


class Meant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """attack: `kind/name` as reports have it. task: a task's id. Both may have * and ?."""

    attack: str
    reason: str
    task: str = "*"


def read_deliberate(path: Path) -> list[Meant]:
    """The entries of a YAML file: a list of objects with attack, reason and perhaps task.

    Raises ConfigError.
    """
    try:
        return msgspec.yaml.decode(path.read_bytes(), type=list[Meant])
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path}: {error}; write a list of attack, task and reason") from None


def with_reasons(found: Iterable[Weakness], meant: Sequence[Meant]) -> list[Weakness]:
    """The weaknesses, those that are meant with their reason."""
    return [replace(one, reason=_reason(one, meant)) for one in found]


def _reason(found: Weakness, meant: Sequence[Meant]) -> str:
    for one in meant:
        if fnmatchcase(found.key, one.attack) and fnmatchcase(found.task_id, one.task):
            return one.reason
    return ""
