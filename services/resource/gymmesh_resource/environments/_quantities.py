r"""Numbers with units, as short answers write them, compared exactly. Pure.

Invariant: time is linear in the text, whatever the size of the number: `1e999999` is never
written out.

`quantity` reads 1,234.50, 1 945, -3, 1/2, 2 1/2, 1.6×10^-19, 1e3, 10^6, 5 million, twelve, two
hundred, $5, 80 km/h and 37 percent. It reads no number with leading zeros (007 is an identifier)
and no number beside words that are not a unit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import gcd
from typing import Final

from gymmesh_resource.environments._number_words import SCALES, number_of_words

# Digits of a number, and of its power of ten; longer ones are text.
_DIGITS: Final = 400
_POWER_DIGITS: Final = 9
# Powers of ten between two numbers that can be near each other.
_APART: Final = 1_000

_WHOLE = r"(?:[0-9]{1,3}(?:,[0-9]{3})++|[0-9]{1,3}(?:\ [0-9]{3})++(?![0-9])|[0-9]++)"
_DIGIT = re.compile("[0-9]")
_NUMBER = re.compile(
    rf"""(?P<sign>[+-]?)\s?(?P<currency>[$£€¥₹]?)\s?(?P<sign2>[+-]?)
    (?:(?P<mixed>[0-9]++)\ (?P<part>[0-9]++)/(?P<of>[0-9]++)
      |(?P<over>[0-9]++)\s?/\s?(?P<under>[0-9]++)
      |10\^\{{?(?P<bare>[+-]?[0-9]++)\}}?
      |(?P<whole>{_WHOLE})?(?:\.(?P<decimals>[0-9]*+))?
       (?:[eE](?P<e>[+-]?[0-9]++)|\s?[×x*·⋅]\s?10\^\{{?(?P<power>[+-]?[0-9]++)\}}?)?
       (?:\ (?P<scale>thousand|million|billion|trillion)\b)?)
    (?P<unit>.*)""",
    re.VERBOSE | re.DOTALL,
)
_LONGEST: Final = 2 * _DIGITS  # characters of text that may be a quantity

# Symbols that take SI's prefixes, and those prefixes.
_SI_SYMBOLS: Final = ("m", "g", "s", "l", "L", "J", "W", "N", "Pa", "V", "A", "Hz", "mol", "Ω",
                      "B", "eV", "Wh", "cal", "b")  # fmt: skip
_SI_PREFIXES: Final = ("n", "µ", "μ", "m", "c", "d", "k", "M", "G", "T")
_SI_NAMES: Final = {
    "m": ("metre", "meter"), "g": ("gram",), "s": ("second", "sec"), "L": ("litre", "liter"),
    "J": ("joule",), "W": ("watt",), "N": ("newton",), "Pa": ("pascal",), "V": ("volt",),
    "A": ("ampere", "amp"), "Hz": ("hertz",), "mol": ("mole",), "Ω": ("ohm",), "B": ("byte",),
    "cal": ("calorie",), "b": ("bit",),
}  # fmt: skip
_SI_PREFIX_NAMES: Final = {"": "", "nano": "n", "micro": "µ", "milli": "m", "centi": "c",
                           "kilo": "k", "mega": "M", "giga": "G", "tera": "T"}  # fmt: skip
# Other units by their usual spellings.
_OTHERS: Final = {
    "min": ("minute", "minutes", "mins"), "h": ("hour", "hours", "hr", "hrs"),
    "day": ("days", "d"), "week": ("weeks",), "month": ("months",),
    "year": ("years", "yr", "yrs"), "mi": ("mile", "miles"), "in": ("inch", "inches"),
    "ft": ("foot", "feet"), "yd": ("yard", "yards"), "lb": ("lbs", "pound", "pounds"),
    "oz": ("ounce", "ounces"), "t": ("tonne", "tonnes"), "acre": ("acres",),
    "ha": ("hectare", "hectares"), "rad": ("radian", "radians"),
    "°": ("degree", "degrees", "deg", "^∘"),
    "°C": ("degrees celsius", "degree celsius", "celsius", "C", "degrees C", "deg C"),
    "°F": ("degrees fahrenheit", "degree fahrenheit", "fahrenheit", "F", "degrees F", "deg F"),
    "kB": ("KB",), "kb": ("kbit", "kbits"), "Mb": ("Mbit", "Mbits"), "Gb": ("Gbit", "Gbits"),
    "Mb/s": ("Mbps",), "Gb/s": ("Gbps",), "kb/s": ("kbps",), "MB/s": ("MBps",),
    "K": ("kelvin", "kelvins"),
    "%": ("percent", "per cent", "pct"), "$": ("dollar", "dollars", "usd", "US$"),
    "€": ("euro", "euros", "eur"), "£": ("gbp", "pounds sterling"), "¥": ("yen", "jpy"),
    "₹": ("rupee", "rupees", "inr"), "cent": ("cents",),
    "km/h": ("kph", "kmh", "km/hr"), "mi/h": ("mph",),
}  # fmt: skip
# Powers of ten of the prefixes; bytes and bits are left out, whose kilo may be 1,024.
_SI_POWERS: Final = dict(zip(_SI_PREFIXES, (-9, -6, -6, -3, -2, -1, 3, 6, 9, 12), strict=True))
_NOT_CONVERTED: Final = frozenset(("B", "b"))
# Other units as so many of one that has no prefix.
_AS_BASE: Final = {
    "min": ("s", 60), "h": ("s", 3_600), "day": ("s", 86_400), "week": ("s", 604_800),
    "t": ("g", 1_000_000),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number and its unit; no unit is the empty text.

    The number is numerator / denominator * 10 ** power, in the one form in which the denominator
    has no factor 2 or 5, the numerator none of 10, and both none in common.
    """

    numerator: int
    denominator: int
    power: int
    unit: str = ""
    bound: bool = False
    """Whether the unit is one letter right behind the digits, as in seat 12A: never left out."""

    def has_value_of(self, other: Quantity) -> bool:
        """Whether both numbers are equal, their units aside."""
        return (self.numerator, self.denominator, self.power) == (
            other.numerator,
            other.denominator,
            other.power,
        )

    def is_near(self, other: Quantity, tolerance: float) -> bool:
        """Whether this number differs from the other by at most that share of the other."""
        if self.has_value_of(other):
            return True
        if not other.numerator or abs(self.power - other.power) > _APART:
            return False
        least = min(self.power, other.power)
        own, wanted = self._times(-least), other._times(-least)
        return abs(own - wanted) <= Fraction(tolerance) * abs(wanted)

    def _times(self, power: int) -> Fraction:
        """The number times that power of ten, which makes it a fraction of whole numbers."""
        scale: int = 10 ** (self.power + power)
        return Fraction(self.numerator, self.denominator) * scale

    def in_unit_of(self, other: Quantity) -> Quantity | None:
        """This quantity in the other's unit; None if the unit is of another kind.

        A unit that is not written may be either. Metric units and those of time are converted.
        """
        if self.unit == other.unit:
            return self
        if not self.unit or not other.unit:
            return None if self.bound or other.bound else self
        own, wanted = _in_base(self.unit), _in_base(other.unit)
        if own is None or wanted is None or own[0] != wanted[0]:
            return None
        factor = own[1] / wanted[1]
        return _normal(
            self.numerator * factor.numerator,
            self.denominator * factor.denominator,
            self.power,
            other.unit,
        )


def quantity(text: str) -> Quantity | None:
    """The number, with its unit, that the whole text is; None for any other text."""
    if len(text) > _LONGEST:
        return None
    found = _NUMBER.fullmatch(text) if _DIGIT.search(text) else None
    if found is None:
        return _in_words(text)
    number = _number(found)
    if number is None:
        return None
    written = found["unit"]
    unit, bound = _unit(written.strip()), len(written) == 1 and written.isalpha()
    currency = found["currency"]
    if unit is None or (currency and unit and unit != currency):
        return None
    negative = "-" in (found["sign"], found["sign2"])
    if found["sign"] and found["sign2"]:
        return None
    numerator, denominator, power = number
    if negative:
        numerator = -numerator
    return _normal(numerator, denominator, power, unit or currency, bound=bound)


def _in_words(text: str) -> Quantity | None:
    """A number as words, perhaps with a unit: twelve, two hundred km."""
    value, unit = number_of_words(text), ""
    if value is None:
        said = text.split(" ")
        for at in range(len(said) - 1, max(0, len(said) - 4), -1):
            found = _unit(" ".join(said[at:]))
            value = number_of_words(" ".join(said[:at])) if found else None
            if found and value is not None:
                unit = found
                break
    return None if value is None else _normal(value.numerator, value.denominator, 0, unit)


def _number(found: re.Match[str]) -> tuple[int, int, int] | None:
    """Numerator, denominator and power of ten, neither in their normal form."""
    parts = found.groupdict()
    if any(value and len(value) > _DIGITS for key, value in parts.items() if key != "unit"):
        return None
    if parts["mixed"]:
        under = int(parts["of"])
        return (int(parts["mixed"]) * under + int(parts["part"]), under, 0) if under else None
    if parts["over"]:
        return (int(parts["over"]), int(parts["under"]), 0) if int(parts["under"]) else None
    power = parts["bare"] or parts["power"] or parts["e"] or "0"
    if len(power) > _POWER_DIGITS + 1:
        return None
    if parts["bare"]:
        return 1, 1, int(power)
    whole, decimals = parts["whole"] or "", parts["decimals"] or ""
    if not whole and not decimals:
        return None
    digits = whole.replace(",", "").replace(" ", "")
    if len(digits) > 1 and digits[0] == "0":
        return None  # an identifier
    shift = int(power) - len(decimals) + SCALES.get(parts["scale"] or "", 0)
    return int(digits + decimals), 1, shift


def _normal(
    numerator: int, denominator: int, power: int, unit: str, *, bound: bool = False
) -> Quantity:
    if numerator == 0:
        return Quantity(0, 1, 0, unit, bound)
    for factor, other in ((2, 5), (5, 2)):
        while denominator % factor == 0:
            denominator //= factor
            numerator *= other
            power -= 1
    common = gcd(numerator, denominator)
    numerator, denominator = numerator // common, denominator // common
    while numerator % 10 == 0:
        numerator //= 10
        power += 1
    return Quantity(numerator, denominator, power, unit, bound)


def _unit(text: str) -> str | None:
    """The unit under one of its spellings; None for what is not a unit."""
    if not text:
        return ""
    unit = _known(text)
    if unit is not None:
        return unit
    parts = re.split(r"\s?/\s?|\sper\s", text)
    units = list(map(_power_of, parts))
    return None if None in units else "/".join(filter(None, units))


def _known(text: str) -> str | None:
    """The unit of a spelling; in another case where that can be one unit only.

    One letter in another case may be another unit, and MB is not Mb.
    """
    unit = _units().get(text)
    if unit is None and len(text) > 1:
        alike = _units_by_small_letters().get(text.lower(), frozenset())
        unit = next(iter(alike)) if len(alike) == 1 else None
    return unit


@cache
def _in_base(unit: str) -> tuple[str, Fraction] | None:
    """The unit as so many of one without a prefix; None where it is not converted."""
    if unit in _AS_BASE:
        base, count = _AS_BASE[unit]
        return base, Fraction(count)
    for symbol in _SI_SYMBOLS:
        prefix = unit.removesuffix(symbol)
        if symbol in _NOT_CONVERTED or prefix == unit or (prefix and prefix not in _SI_POWERS):
            continue
        return symbol, Fraction(10) ** (_SI_POWERS[prefix] if prefix else 0)
    return None


def _power_of(text: str) -> str | None:
    """A unit with or without a power, such as m^2 or square metres."""
    for word, power in (("square ", "^2"), ("cubic ", "^3")):
        if text.startswith(word):
            unit = _known(text.removeprefix(word))
            return None if unit is None else unit + power
    base, _, power = text.partition("^")
    unit = _known(base)
    if unit is None or not power:
        return unit
    power = power.strip("{}")
    return f"{unit}^{power}" if re.fullmatch(r"-?[0-9]", power) else None


@cache
def _units() -> dict[str, str]:
    """The one spelling of each unit by all of its spellings."""
    known: dict[str, str] = {}
    for symbol in _SI_SYMBOLS:
        own = symbol.replace("l", "L") if symbol == "l" else symbol
        known[symbol] = own
        for prefix in _SI_PREFIXES:
            known[prefix + symbol] = prefix.replace("μ", "µ") + own
    for symbol, names in _SI_NAMES.items():
        for name in names:
            for prefix_name, prefix in _SI_PREFIX_NAMES.items():
                known[prefix_name + name] = known[prefix_name + name + "s"] = prefix + symbol
    for unit, spellings in _OTHERS.items():
        known |= dict.fromkeys((unit, *spellings), unit)
    return known


@cache
def _units_by_small_letters() -> dict[str, frozenset[str]]:
    """The units that a spelling in small letters can be."""
    alike: dict[str, set[str]] = {}
    for spelling, unit in _units().items():
        alike.setdefault(spelling.lower(), set()).add(unit)
    return {spelling: frozenset(units) for spelling, units in alike.items()}
