"""The name under which vLLM serves a model. Pure."""

from __future__ import annotations

from pathlib import PurePath


def served_name(model: str) -> str:
    """The name itself, and of a directory's path the last part, which says nothing of the machine.

    `org/model` is a name; a path begins with `/`, `.` or `~`.
    """
    return PurePath(model).name or model if model[:1] in ("/", ".", "~") else model
