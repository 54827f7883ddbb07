"""Reads a scalar: a number or expression, perhaps with a unit, in a base, or a ratio. Pure."""

from __future__ import annotations

import re
from fractions import Fraction

from gymmesh_resource.environments._number_words import factor_of, number_of_words
from gymmesh_resource.environments.math.answers.evaluation import NoValue, exact
from gymmesh_resource.environments.math.answers.expressions import in_base, number, read_expression
from gymmesh_resource.environments.math.answers.forms import Collection, Form, Scalar
from gymmesh_resource.environments.math.answers.nodes import Node, Unreadable, walk
from gymmesh_resource.environments.math.answers.splitting import split
from gymmesh_resource.environments.math.answers.units import (
    DEGREE,
    Unit,
    is_known_unit,
    read_unit,
)

_BASE = re.compile(
    r"(?:\(|\\text\s?\{)?(?P<digits>[0-9A-Z]*\d[0-9A-Z]*|[A-F]+)[)}]?\s?_\s?\{?\s?(?:\\text\s?\{)?(?P<base>\d{1,2}|[a-z]+)\}{0,2}"
)
_BASES = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7",
          "eight": "8", "nine": "9", "ten": "10", "twelve": "12", "sixteen": "16"}  # fmt: skip
_LONGEST_BASED = 300
_TAIL = re.compile(
    r"(?:(?:\\text\s?\{(?:[^{}]|\{[^{}]*\})*\}"
    r"|(?<![A-Za-z\\])[A-Za-z$\N{EURO SIGN}\N{POUND SIGN}\N{YEN SIGN}]+)"
    r"(?:\s?\^\s?(?:\{\s?-?\d\s?\}|-?\d))?\s*(?:(?:/|\\cdot)\s*)?)+$"
)
_TEXT = re.compile(r"\\text\s?\{((?:[^{}]|\{[^{}]*\})*)\}")
_HELD = r"(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*"  # what braces hold, which may have braces
# The unit as a fraction, and the number above its line, if it stands there.
_OVER = re.compile(
    r"\\frac\s?\{\s?(?P<number>-?\s?\d+(?:\.\d+)?(?=[^\d.]))?"
    rf"(?P<above>{_HELD})\}}\s?\{{(?P<below>{_HELD})\}}\s?$"
)
_WRAPPED_OVER = re.compile(r"\\text\s?\{\s*(\\frac\s?\{[^{}]*\}\s?\{[^{}]*\})\s*\}\s?$")
_LITERAL = re.compile(
    r"-?\s?[\d.,]+(?:\s?(?:\\times|\\cdot|\*)\s?10\s?\^\s?(?:\{\s?-?\d+\s?\}|-?\d+))?"
)
_PLAIN = re.compile(r"-?\s?(?:\d+(?:\.\d+)?|\.\d+)")
_QUANTITY = re.compile(r"(?P<digits>\d+(?:\.\d+)?)\s?(?P<unit>\\text\s?\{[^{}\d]*\}|[A-Za-z]+)\s?")
_SEVERAL = re.compile(
    rf"(?:{_QUANTITY.pattern.replace('?P<digits>', '?:').replace('?P<unit>', '?:')}){{2,4}}"
)
_CURRENCY = re.compile(
    r"(?P<sign>-?)\s?(?P<unit>[$\N{EURO SIGN}\N{POUND SIGN}\N{YEN SIGN}])\s?(?P<rest>-?[\d.].*)"
)


def without_unit_fraction(text: str) -> str:
    r"""The text with a fraction of units at its end as one unit: ``\frac{km}{h}`` is km/h."""
    text = _WRAPPED_OVER.sub(r"\1", text)
    found = _OVER.search(text)
    if found is None:
        return text
    head = text[: found.start()].strip()
    above, below = (_unit_text(found[part]) for part in ("above", "below"))
    if above is None or below is None or bool(head) == bool(found["number"]):
        return text
    written = head or (found["number"] or "").replace(" ", "")
    return f"{written} \\text{{{above}/{below}}}" if _LITERAL.fullmatch(written) else text


def _unit_text(text: str) -> str | None:
    """A unit as plain text; None for what is none."""
    plain = " ".join(_TEXT.sub(r" \1 ", text).replace("\\cdot", " ").split())
    written = re.sub(r"\s*\^\s*\{?\s?(-?\d)\s?\}?", r"^\1", plain)
    words = "\\text" in text
    if not re.fullmatch(r"[A-Za-z0-9^ /-]+", written) or read_unit(written) is None:
        return None
    return written if words or all(map(_is_unit_word, written.split())) else None


def read_scalar(text: str) -> Form:
    """A number or expression, perhaps with a unit, as a ratio, or with a double sign."""
    if (based := _in_base(text)) is not None:
        return Scalar(based)
    parts, colons = split(text, lambda token: token == ":")
    if colons:
        return _ratio(parts)
    if (several := _several_units(text)) is not None:
        return several
    text, unit = _without_unit(text)
    node = read_expression(text)
    if node.op == "deg":
        return Scalar(node.args[0], DEGREE)
    if node.op == "neg" and node.args[0].op == "deg":
        return Scalar(Node("neg", node.args[0].args), DEGREE)
    if any(one.op in ("pm", "mp") for one in walk(node)):
        return Collection(
            "list", tuple(Scalar(one, unit) for one in (_signed(node, 1), _signed(node, -1)))
        )
    return Scalar(node, unit)


def read_number_words(text: str) -> Scalar | None:
    """A number as words, perhaps with a known unit: seventy-two, two hundred km, ten percent."""
    said = " ".join(_TEXT.sub(r" \1 ", text).split())
    bare = said.removesuffix("%").strip()
    head, unit = bare, None
    value = number_of_words(bare)
    if value is None:
        head, _, name = bare.rpartition(" ")
        value = number_of_words(head) if is_known_unit(name) else None
        unit = read_unit(name)
    if value is None:
        return None
    node = _number_of(value)
    return Scalar(node if bare == said else Node("percent", (node,)), unit)


def _signed(node: Node, sign: int) -> Node:
    """The expression with its double signs as plus and minus, or the other way round."""
    args = tuple(_signed(part, sign) for part in node.args)
    if node.op not in ("pm", "mp"):
        return Node(node.op, args, node.name, node.value, node.place)
    plus = (node.op == "pm") == (sign > 0)
    if len(args) == 2:
        return Node("add" if plus else "sub", args)
    return args[0] if plus else Node("neg", args)


def _in_base(text: str) -> Node | None:
    sign, bare = ("-", text[1:].strip()) if text.startswith("-") else ("", text)
    found = _BASE.fullmatch(bare) if len(bare) <= _LONGEST_BASED else None
    if found is None:
        return None
    node = in_base(found["digits"], _BASES.get(found["base"], found["base"]))
    return Node("neg", (node,)) if sign else node


def _ratio(parts: list[str]) -> Form:
    nodes = [read_expression(part) for part in parts]
    if len(nodes) == 2:
        return Scalar(Node("frac", (nodes[0], nodes[1])))
    try:
        values = [exact(node) for node in nodes]
    except NoValue:
        values = [None]
    if None in values or not values[0]:
        raise Unreadable("a ratio's parts are not numbers")
    first = values[0]
    scaled = (_number_of(value / first) for value in values if value is not None)
    return Collection("ratio", tuple(map(Scalar, scaled)))


def _number_of(value: Fraction) -> Node:
    """The tree of a fraction."""
    above, below = number(str(abs(value.numerator))), number(str(value.denominator))
    node = above if value.denominator == 1 else Node("frac", (above, below))
    return Node("neg", (node,)) if value < 0 else node


def _several_units(text: str) -> Scalar | None:
    """A quantity in several units, such as 2 hours 30 minutes, in the last of them."""
    if _SEVERAL.fullmatch(text) is None:
        return None
    total, last = Fraction(0), None
    for found in _QUANTITY.finditer(text):
        unit = read_unit(re.sub(r"\\text\s?\{([^{}]*)\}", r"\1", found["unit"]))
        if unit is None or (last is not None and unit.powers != last.powers):
            return None
        value = number(found["digits"]).value
        total, last = value + (total * last.scale / unit.scale if last else 0), unit
    return Scalar(_number_of(total), last)


def _without_unit(text: str) -> tuple[str, Unit | None]:
    """The number before a unit, and the unit; words for a million are part of the number."""
    if (found := _CURRENCY.fullmatch(text)) is not None:
        rest, behind = _without_unit(found["rest"])
        unit = read_unit(found["unit"])
        return found["sign"] + rest, unit if unit is None or behind is None else unit.times(behind)
    tail = _TAIL.search(text, max(0, len(text) - 120))
    if tail is None or not text[: tail.start()].strip():
        return text, None
    head, behind_it = text[: tail.start()].strip(), tail.group()
    roman = "\\text" in behind_it
    written = _TEXT.sub(r" \1 ", behind_it)
    said = re.sub(r"\s*\^\s*", "^", written).split()
    counted = _LITERAL.fullmatch(head) or factor_of(said[0]) is not None
    if not roman and not (counted and all(map(_is_unit_word, said))):
        return text, None
    factor = Fraction(1)
    while said and (one := factor_of(said[0])) is not None:
        factor, said = factor * one, said[1:]
    if factor != 1:
        head = _times(head, factor)
    if not said:
        return head, None
    unit = read_unit(" ".join(said))
    if unit is None:
        raise Unreadable("the text after the number is not a unit")
    return head, unit


def _times(text: str, factor: Fraction) -> str:
    """The number times what a word behind it says. 3.2 million is a number, and no product."""
    power = len(str(factor.numerator)) - 1
    plain = _PLAIN.fullmatch(text)
    if factor == 10**power:
        return f"{text}e{power}" if plain else f"({text})\\cdot 10^{{{power}}}"
    if plain is None:
        return f"({text})\\cdot\\frac{{{factor.numerator}}}{{{factor.denominator}}}"
    value = Fraction(text.replace(" ", "")) * factor
    if value.denominator == 1:
        return str(value)
    sign = "-" if value < 0 else ""
    return f"{sign}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def _is_unit_word(word: str) -> bool:
    names = [name for name in re.split(r"[/^\d{}\-]+|\\cdot", word) if name]
    return all(
        is_known_unit(name) or len(name) > 3 or factor_of(name) or name == "per" for name in names
    )
