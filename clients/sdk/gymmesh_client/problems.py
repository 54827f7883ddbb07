"""Possible problems with a user's input, each as one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gymmesh_runtime.text import os_reason


@dataclass(frozen=True, slots=True)
class TaskProblem:
    """A mistake in a task file.

    Attributes:
        line: the line, from 1.
        key: the path of the key concerned, such as `responses_create_params.tools[1]`; may be
            empty.
        sentence: what is wrong and how to fix it.
    """

    line: int
    key: str
    sentence: str

    def at(self, path: Path | str) -> str:
        """The mistake with its place, as `tasks.jsonl:3: seed: must be …`.

        path: of the file, or a name for it.
        """
        return f"{path}:{self.line}: " + (f"{self.key}: " if self.key else "") + self.sentence


class UserError(Exception):
    """An error that the user can fix. Its text is one sentence and needs no traceback."""


def unreadable(path: Path, error: Exception) -> UserError:
    """The error for a file that can't be read."""
    return UserError(f"{path}: cannot be read: {os_reason(error)}")


def unwritable(path: Path, error: Exception) -> UserError:
    """The error for a file or folder that can't be written."""
    return UserError(f"{path}: cannot be written: {os_reason(error)}")
