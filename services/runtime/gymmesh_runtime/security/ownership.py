"""The owner of an id: callers choose ids, and must not find what belongs to another caller.

An id is looked up together with the caller's identity, so that a guessed id of another caller's is
not found. Callers within the process, and all callers where there are no identities, have the empty
identity.
"""

from __future__ import annotations

from typing import Final

_BETWEEN: Final = "\0"  # in no identity's name


def owned(identity: str, key: str) -> str:
    """The key of what a caller's id stands for; the id itself for the empty identity."""
    return f"{identity}{_BETWEEN}{key}" if identity else key


def shown(key: str) -> str:
    """The id of a key, as its caller wrote it."""
    return key.rpartition(_BETWEEN)[2]


def may_use(identity: str, owner: str) -> bool:
    """Whether a caller may use what an owner made; those within the process may use all."""
    return not identity or identity == owner
