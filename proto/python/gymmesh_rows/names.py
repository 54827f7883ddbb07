"""The names of enums' values, without their prefix: as rows have them."""

from __future__ import annotations

import sys
from typing import Any


class EnumNames(dict[int, str]):
    """An enum's names without their prefix; for a value of a later contract its number."""

    def __init__(self, enum: Any, prefix: str) -> None:
        # One object for each text, since msgspec tells a default by its identity.
        super().__init__(
            {int(number): sys.intern(name.removeprefix(prefix)) for name, number in enum.items()}
        )

    def __missing__(self, value: int) -> str:
        return str(value)
