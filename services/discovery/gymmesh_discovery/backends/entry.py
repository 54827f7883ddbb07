"""The common parts of entries in Consul and Kubernetes, and messages about them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from gymmesh_runtime.contract import CONTRACT_VERSION, speaks_ours
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.names import check_name

_log = logging.getLogger("gymmesh.discovery")

MAX_WEIGHT: Final = 65_535
_MOST_WARNINGS: Final = 1000
_LONGEST_WARNING: Final = 1000


class EntryError(ValueError):
    """An entry that cannot be read as an instance; the message says why."""


def check_contract(version: str) -> None:
    """Raises EntryError for another major version of the contract."""
    if not speaks_ours(version):
        raise EntryError(
            f"the instance uses contract version '{version}', but this process uses "
            f"{CONTRACT_VERSION}"
        )


def check_names(texts: Iterable[tuple[str, str]]) -> None:
    """Raises EntryError if a text is too long or has invisible characters. Each text has a
    description.
    """
    try:
        for what, text in texts:
            check_name(what, text)
    except MeshError as error:
        raise EntryError(error.message) from None


def printable(text: str) -> str:
    """The text with a blank in place of each character that does not print."""
    return "".join(one if one.isprintable() else " " for one in text)


class Warnings:
    """Logs warnings about a registry's entries: each warning once, and at most a thousand."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def once(self, line: str) -> None:
        """Log a warning, unless it was logged before."""
        if line not in self._given and len(self._given) < _MOST_WARNINGS:
            self._given.add(line)
            _log.warning("%s", printable(line)[:_LONGEST_WARNING])
