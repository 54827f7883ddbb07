"""JSON values without what is secret in them. Pure.

A configuration's own secrets are marked by their type and are `***` in its public view. Left are
values that a user put elsewhere: an option of an environment called `api_key`, a URL with a
password, a variable's value in free text. The law: no text that is a secret of the configuration,
that stands under a key whose name says so, or that has the form of a credential, is in the result.
"""

from __future__ import annotations

import re
from typing import Any, Final

from gymmesh_runtime.text import mask_secrets

MASK: Final = "***"
_SECRET_KEY: Final = re.compile(
    r"(?i)(api_?key|secret|password|passwd|credential|authorization|(access|auth|bearer)_?token)"
    r"|(^|[_.-])(key|token|headers?|auth|cookies?|bearer)$"
)
# Such a key says where a secret is, or what it is called.
_PLACE: Final = re.compile(r"(?i)(file|path|env|name)s?$")
# A URL's user and password.
_USER: Final = re.compile(r"(?<=://)[^/@\s]+@")


def without_secrets(value: Any, *, secret: bool = False) -> Any:
    """The JSON values with `***` for each secret, or for all with `secret`. Names of keys stay, and
    so do booleans and nulls.
    """
    if isinstance(value, dict):
        return {
            str(key): without_secrets(member, secret=secret or _names_secret(str(key)))
            for key, member in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_secrets(member, secret=secret) for member in value]
    if secret and value != "" and value is not None and not isinstance(value, bool):
        return MASK
    if isinstance(value, str):
        return mask_secrets(_USER.sub(f"{MASK}@", value))
    return value


def _names_secret(key: str) -> bool:
    """Whether what stands under a key is secret by its name."""
    return bool(_SECRET_KEY.search(key)) and not _PLACE.search(key)


def is_masked(value: Any) -> bool:
    """Whether something was left out of a value, so that nobody can say whether it changed."""
    return isinstance(value, str) and MASK in value
