"""What another registry says, in messages and in the log."""

from __future__ import annotations

import logging
from typing import Final

_log = logging.getLogger("gymmesh.discovery")

_MOST_WARNINGS: Final = 1000
_LONGEST_WARNING: Final = 1000


def printable(text: str) -> str:
    """The text with a blank for each character that does not print."""
    return "".join(one if one.isprintable() else " " for one in text)


class Warnings:
    """Warnings about what a registry lists, each logged once, and no more than a thousand."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def once(self, line: str) -> None:
        """Log a warning, unless it was logged before."""
        if line not in self._given and len(self._given) < _MOST_WARNINGS:
            self._given.add(line)
            _log.warning("%s", printable(line)[:_LONGEST_WARNING])
