"""What entries of another registry, Consul's or Kubernetes's, have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gymmesh_runtime.contract import CONTRACT_VERSION, speaks_ours
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.names import check_name

MAX_WEIGHT: Final = 65_535


class EntryError(ValueError):
    """An entry, or a part of one, that cannot be an instance; the message says why."""


def check_contract(version: str) -> None:
    """Raises EntryError for another major version of the contract."""
    if not speaks_ours(version):
        raise EntryError(f"it speaks contract version '{version}' and this side {CONTRACT_VERSION}")


def check_names(texts: Iterable[tuple[str, str]]) -> None:
    """Raises EntryError where one of the texts, each with what it is, is too long or invisible."""
    try:
        for what, text in texts:
            check_name(what, text)
    except MeshError as error:
        raise EntryError(error.message) from None
