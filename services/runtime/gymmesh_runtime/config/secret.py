"""Secrets: strings that do not show themselves."""

from __future__ import annotations

from typing import Any

import msgspec

from gymmesh_runtime.text import remember_secret


class Secret(str):
    """A string such as an API key, whose `repr` is `***` (in Structs and logs of them, too).

    It is a `str` otherwise: formatting it or putting it in a header gives the text. Logs mask it.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Secret:
        remember_secret(text)
        return super().__new__(cls, text)

    def __repr__(self) -> str:
        return "***"


def public_view(value: Any) -> Any:
    """A configuration as plain JSON values, its secrets replaced by `***`.

    Takes Structs, mappings, sequences and scalars; anything else becomes its `repr`.
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
