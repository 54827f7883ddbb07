"""What a check came to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; `detail` is a line for people.

    `warning`: nothing is broken, but the author should look at it.
    """

    check: str
    fine: bool
    detail: str
    warning: bool = False


class Flaw(Exception):
    """A check failed; the text is for the author."""


class Warned(Exception):
    """A check passed with a warning; the text is for the author."""
