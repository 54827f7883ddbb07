"""Secrets: strings that do not show themselves."""

from __future__ import annotations

from typing import Any

import msgspec

from gymmesh_runtime.text import remember_secret


class Secret(str):
    """A string such as an API key. Its `repr` is `***`, also within Structs and logs of Structs.

    In every other way it is a `str`: formatting it or using it in a header shows the text. Logs
    mask it.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Secret:
        remember_secret(text)
        return super().__new__(cls, text)

    def __repr__(self) -> str:
        return "***"


def public_view(value: Any) -> Any:
    """A configuration as plain JSON values, with `***` for each secret.

    Accepts Structs, mappings, sequences and scalars; any other value becomes its `repr`.
    """
    if isinstance(value, Secret):
        return "***"
    if isinstance(value, msgspec.Struct):
        names = (field.name for field in msgspec.structs.fields(value))
        return {name: public_view(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {str(key): public_view(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [public_view(member) for member in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return repr(value)
