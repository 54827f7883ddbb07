"""Whether a decimal is a value that was rounded. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

_DECIMAL: Final = re.compile(
    r"(?P<sign>[-+]?)(?P<whole>[0-9]{0,60})(?:\.(?P<rest>[0-9]{0,60}))?"
    r"(?:[eE](?P<power>[-+]?[0-9]{1,3}))?"
)


@dataclass(frozen=True, slots=True)
class WrittenDecimal:
    """A decimal as it is written.

    value: exact. place: the value of a one at its last digit. digits: how many are significant.
    """

    value: Fraction
    place: Fraction
    digits: int

    def rounds(self, wanted: Fraction) -> bool:
        """Whether the wanted value, rounded or cut at the last digit, is this decimal."""
        off = abs(self.value - wanted)
        return off <= self.place / 2 or (off < self.place and abs(self.value) < abs(wanted))


def written_decimal(text: str) -> WrittenDecimal | None:
    """Read a decimal such as `-0.25` or `1.23e+4`; None for anything else."""
    found = _DECIMAL.fullmatch(text.strip().replace("−", "-"))
    if found is None:
        return None
    whole, rest = found["whole"], found["rest"] or ""
    if not whole and not rest:
        return None
    place = Fraction(10) ** (int(found["power"] or 0) - len(rest))
    value = int(whole + rest) * place
    digits = len((whole + rest).lstrip("0"))
    return WrittenDecimal(-value if found["sign"] == "-" else value, place, digits)
