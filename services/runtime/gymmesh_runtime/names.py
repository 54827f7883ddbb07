"""Checks names and ids from outside: short and printable."""

from __future__ import annotations

from typing import Final

from gymmesh_runtime.errors import field_invalid

#: The longest name or id that is taken, in characters.
MAX_NAME: Final = 512


def check_name(field: str, text: str) -> None:
    """Raises FIELD_INVALID for a name that is too long, or has characters that nobody can see.

    They end up in logs, metrics and messages to people. An empty one is not looked at.
    """
    if len(text) > MAX_NAME:
        problem = f"exceeds {MAX_NAME} characters"
    elif not text.isprintable():
        problem = "has control characters"
    else:
        return
    raise field_invalid(field, problem)
