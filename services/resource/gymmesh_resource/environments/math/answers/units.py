"""Units behind a number: what dimension they have, and how many base units they are. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

# Each unit: its names; what it is as a product of base units; how many of them.
_TABLE = """
m meter meters metre metres = m
km kilometer kilometers kilometre kilometres = m 1000
cm centimeter centimeters centimetre centimetres = m 1/100
mm millimeter millimeters millimetre millimetres = m 1/1000
um micrometer micrometers micron microns = m 1/1000000
nm nanometer nanometers nanometre nanometres = m 1/1000000000
in inch inches = m 127/5000
ft foot feet = m 381/1250
yd yard yards = m 1143/1250
mi mile miles = m 201168/125
g gram grams = g
kg kilogram kilograms = g 1000
mg milligram milligrams = g 1/1000
t tonne tonnes = g 1000000
lb lbs pound pounds = g 45359237/100000
oz ounce ounces = g 45359237/1600000
s sec secs second seconds = s
ms millisecond milliseconds = s 1/1000
min mins minute minutes = s 60
h hr hrs hour hours = s 3600
d day days = s 86400
week weeks wk = s 604800
month months = month
yr yrs year years = month 12
L l liter liters litre litres = m^3 1/1000
mL ml milliliter milliliters millilitre millilitres = m^3 1/1000000
N newton newtons = g m/s^2 1000
J joule joules = g m^2/s^2 1000
kJ kilojoule kilojoules = g m^2/s^2 1000000
W watt watts = g m^2/s^3 1000
kW kilowatt kilowatts = g m^2/s^3 1000000
Pa pascal pascals = g/m s^2 1000
kPa kilopascal kilopascals = g/m s^2 1000000
Hz hertz = 1/s
kHz kilohertz = 1/s 1000
V volt volts = V
A amp amps ampere amperes = A
mA milliamp milliamps = A 1/1000
C coulomb coulombs = A s
ohm ohms Omega = ohm
K kelvin kelvins = K
mol mole moles = mol
mph = m/s 1397/3125
kph kmh = m/s 5/18
sq_ft = m^2 145161/1562500
deg degree degrees = deg
rad radian radians = rad
byte bytes = byte
kB KB kilobyte kilobytes = byte 1000
MB megabyte megabytes = byte 1000000
GB gigabyte gigabytes = byte 1000000000
TB terabyte terabytes = byte 1000000000000
bit bits = byte 1/8
kb kbit kilobit kilobits = byte 125
Mb Mbit megabit megabits = byte 125000
Gb Gbit gigabit gigabits = byte 125000000
dollar dollars USD $ = dollar
cent cents = dollar 1/100
euro euros EUR \N{EURO SIGN} = euro
GBP \N{POUND SIGN} = gbp
rupee rupees INR = rupee
yen JPY \N{YEN SIGN} = yen
"""
_NO_UNIT = frozenset(("unit", "units", "square units", "cubic units", "sq units", "units^2"))
# Letters of a unit's symbol at most, in which capitals count: G is no gram, Mb no MB.
_SYMBOL = 2
_ATOM = re.compile(
    r"(?P<name>[A-Za-z$\N{EURO SIGN}\N{POUND SIGN}\N{YEN SIGN}]+)(?:\^?\{?(?P<power>-?\d)\}?)?"
)
# Words behind a number that make a statement of it, rather than say what is counted.
_STATING = {
    "is", "are", "was", "be", "not", "no", "never", "wrong", "incorrect", "false", "true", "right",
    "correct", "or", "and", "if", "but", "maybe", "perhaps", "than", "less", "more", "at", "least",
    "most", "up", "between", "plus", "minus", "times", "to", "from", "isn", "yes", "either",
    "neither", "unless", "except", "impossible", "invalid", "unknown", "roughly", "fewer",
    "minimum", "maximum", "excluded", "rejected", "eliminated", "ruled", "fails", "failed", "fail",
    "seems", "looks", "appears", "implausible", "improbable", "unlikely", "doubtful", "untrue",
    "mistaken", "absurd", "nonsense", "tops", "upwards", "onwards", "over", "under", "above",
    "below", "beyond", "can", "cannot", "could", "would", "should", "must", "might", "may",
    "does", "doesn", "won", "squared", "cubed", "factorial",
}  # fmt: skip
_WORDS = {
    "per": "/", "square": "sq", "squared": "^2", "cubic": "cu", "cubed": "^3",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Unit:
    """A product of powers of base units, `scale` times; unknown names are base units too."""

    powers: frozenset[tuple[str, int]]
    scale: Fraction = Fraction(1)

    def times(self, other: Unit, sign: int = 1) -> Unit:
        """The unit of a product, or of a quotient where `sign` is -1."""
        powers = dict(self.powers)
        for name, power in other.powers:
            powers[name] = powers.get(name, 0) + sign * power
        scale = self.scale * (other.scale if sign > 0 else 1 / other.scale)
        return Unit(frozenset((name, power) for name, power in powers.items() if power), scale)


NO_UNIT = Unit(frozenset())
DEGREE = Unit(frozenset((("deg", 1),)))
RADIAN = Unit(frozenset((("rad", 1),)))


def read_unit(text: str) -> Unit | None:
    """The unit that a text such as ``km/h``, ``m s^{-2}`` or ``square feet`` is; None if none.

    Words that are no unit of the table count as one of their own (``apples``), in the singular.
    """
    text = " ".join(text.replace("\\cdot", " ").split()).strip(" .")
    if text.lower() in _NO_UNIT:
        return NO_UNIT
    if not text or len(text) > 60:
        return None
    total, sign, power_before = NO_UNIT, 1, 1
    for word in re.findall(r"/|[^\s/*()]+", text):
        known = _WORDS.get(word.lower(), word)
        if known in ("/", "sq", "cu"):
            sign = -1 if known == "/" else sign
            power_before = {"sq": 2, "cu": 3}.get(known, 1)
            continue
        if known in ("^2", "^3"):
            return None
        found = _ATOM.fullmatch(word)
        if found is None:
            return None
        power = int(found["power"] or power_before)
        if not 0 < abs(power) < 10 or found["name"].lower() in _STATING:
            return None
        for _ in range(abs(power)):
            total = total.times(_named(found["name"]), sign if power > 0 else -sign)
        power_before = 1
    return total


def is_known_unit(name: str) -> bool:
    """Whether a name is one of the table's."""
    return name in _UNITS or (len(name) > 2 and name.lower() in _UNITS)


def _named(name: str) -> Unit:
    unit = _UNITS.get(name)
    if unit is None and len(name) > 1:  # in another case, where that can be one unit only
        alike = {one for known, one in _UNITS.items() if known.lower() == name.lower()}
        unit = alike.pop() if len(alike) == 1 else None
    if unit is not None:
        return unit
    word = name if len(name) <= _SYMBOL else name.lower()
    if len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    return Unit(frozenset(((word, 1),)))


def _units() -> dict[str, Unit]:
    units: dict[str, Unit] = {}
    for line in _TABLE.strip().splitlines():
        names, _, meaning = line.partition(" = ")
        *product, last = meaning.split()
        scale = Fraction(last) if re.fullmatch(r"[\d/]+", last) and product else Fraction(1)
        parts = product if re.fullmatch(r"[\d/]+", last) and product else [*product, last]
        powers: dict[str, int] = {}
        sign = 1
        for piece in re.findall(r"/|[^\s/]+", " ".join(parts)):
            if piece == "/":
                sign = -1
            elif piece != "1":
                base, _, power = piece.partition("^")
                powers[base] = powers.get(base, 0) + sign * int(power or 1)
        unit = Unit(frozenset(powers.items()), scale)
        units.update(dict.fromkeys(names.split(), unit))
    return units


_UNITS = _units()
