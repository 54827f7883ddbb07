"""The owner of an id. Callers choose ids, and must not find objects of other callers.

An id is looked up together with the caller's identity, so a guessed id of another caller is not
found. Callers within the process have the empty identity. Without identities, all callers have it.
"""

from __future__ import annotations

from typing import Final

_BETWEEN: Final = "\0"  # in no identity's name


def owned(identity: str, key: str) -> str:
    """The key of an object with a caller's id. For the empty identity the key is the id itself."""
    return f"{identity}{_BETWEEN}{key}" if identity else key


def shown(key: str) -> str:
    """The id in a key, as the caller wrote it."""
    return key.rpartition(_BETWEEN)[2]


def may_use(identity: str, owner: str) -> bool:
    """Whether a caller may use an object of an owner. Callers within the process may use all
    objects.
    """
    return not identity or identity == owner
