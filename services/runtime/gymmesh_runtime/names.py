"""Checks that names and ids from outside are short and printable."""

from __future__ import annotations

from typing import Final

from gymmesh_runtime.errors import field_invalid

#: The longest name or id that is taken, in characters.
MAX_NAME: Final = 512


def check_name(field: str, text: str) -> None:
    """Raises FIELD_INVALID for a name that is too long, or has invisible characters.

    Such names would be in logs, metrics and messages. An empty name is accepted.
    """
    if len(text) > MAX_NAME:
        problem = f"exceeds {MAX_NAME} characters"
    elif not text.isprintable():
        problem = "has control characters"
    else:
        return
    raise field_invalid(field, problem)
