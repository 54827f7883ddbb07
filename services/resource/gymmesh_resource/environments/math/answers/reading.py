r"""Reads an answer: what it denotes, in all the readings that its text allows.

Pure. Raises `Unreadable` for what only a computer algebra system may read, and `Untrue` for a
chain such as ``40 = 41 = 42`` with a link that is not true.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Literal

from gymmesh_resource.environments.math.answers import words
from gymmesh_resource.environments.math.answers.evaluation import symbols
from gymmesh_resource.environments.math.answers.expressions import (
    LONGEST,
    product_of,
    read_expression,
)
from gymmesh_resource.environments.math.answers.forms import (
    Assigned,
    Chain,
    Collection,
    Form,
    OneSidedRelation,
    Region,
    RegionPart,
    Relation,
    Scalar,
    Words,
)
from gymmesh_resource.environments.math.answers.nodes import Node, Unreadable, walk
from gymmesh_resource.environments.math.answers.notation import RELATIONS, clean
from gymmesh_resource.environments.math.answers.numbers import close, same_value
from gymmesh_resource.environments.math.answers.regions import (
    EVERYTHING,
    interval,
    united,
    within,
    without_points,
)
from gymmesh_resource.environments.math.answers.scalars import (
    read_number_words,
    read_scalar,
    without_unit_fraction,
)
from gymmesh_resource.environments.math.answers.splitting import enclosed, split
from gymmesh_resource.environments.math.answers.units import is_known_unit, read_unit


class Untrue(ValueError):
    """The answer is a chain with a link that is not true, or not seen to be."""


_COMMAS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_PERCENT = re.compile(
    r"\s*(?:\\text\s?\{\s*(?:percent|per cent)\s*\}|(?<![a-zA-Z])(?:percent|per cent)(?![a-zA-Z]))"
)
_TEMPERATURE = re.compile(
    r"\^\s?(?:\{\s?\\circ\s?\}|\\circ)\s?(?:\\text\s?\{\s*([CF])\s*\}|([CF])(?![a-z]))"
)
_JOINING = re.compile(r"\\text\s?\{\s*(and|or|if|for|such that|where)\s*\}")
_UNIT_FRACTION = re.compile(
    r"\\frac\s?\{\s?\\text\s?\{([^{}]*)\}\s?\}\s?\{\s?\\text\s?\{([^{}]*)\}\s?\}"
)
_LEADING = re.compile(
    r"(?:\\(?:approx|Rightarrow|therefore|to)(?![a-zA-Z])|=|\\text\s?\{[^{}]*(?:[:=]|\bis)\s*\}|\\text\s?\{\s*(?:approximately|about)\s*\}|approximately|about"
    r"|(?:the )?(?:final )?answer(?: is|:))\s*",
    re.IGNORECASE,
)
_NEGATIVE = re.compile(
    r"(?:\\text\s?\{\s*(?:minus|negative)\s*\}|(?:minus|negative)(?![a-zA-Z]))\s*(?=[\d.(\\])",
    re.IGNORECASE,
)
_WRAPPED = re.compile(
    r"\\(?:text|mathrm|mathbf|boldsymbol|boxed|underline|fbox)\s?\{((?:[^{}]|\{[^{}]*\})*)\}"
)
_MATRIX = re.compile(
    r"\\begin\{([pbvBV]?matrix|array)\}(?:\{[clr| ]*\})?(.*)\\end\{\1\}", re.DOTALL
)
_REVERSED = re.compile(r"\](.*),(.*)\[")
_LETTERS = re.compile(r"[A-Za-z]{2,4}")
_DOTS = re.compile(r"\\(?:ldots|cdots|dots|vdots)(?![a-zA-Z])|\.\.\.")
_PLAIN_WORDS = re.compile(r"(?:[A-Za-z' -]|\\text\s?\{[A-Za-z' -]*\})+")
# Words with which what stands before an equals sign denies it: "it is not true that x".
_DENYING = frozenset((
    "not", "never", "cannot", "false", "wrong", "incorrect", "untrue", "impossible", "unlikely",
    "doubt", "isn",
))  # fmt: skip
_CALLED = re.compile(
    r"[A-Za-z]\s?(?:\^\s?\{\s?-\s?1\s?\})?'?\s?\(\s?[^()]{1,20}\)"
    r"|\\frac\s?\{\s?d\s?[a-z]\s?\}\s?\{\s?d\s?[a-z]\s?\}"
)
_ARROWS = {"\\to", "\\Rightarrow", "->", "=>", "\\iff", "\\Leftrightarrow", "\\mapsto"}
_LINKS = {"=", "==", "\\approx"}
_ORDERS: Mapping[str, Literal["<", "<="]] = {
    "<": "<", ">": "<", "\\le": "<=", "\\ge": "<=", "<=": "<=", ">=": "<=",
}  # fmt: skip
_OTHER_SIGNS = {f"\\{name}" for name in RELATIONS}
_SIGNS = _LINKS | set(_ORDERS) | _OTHER_SIGNS
_NONE = Collection("set", ())


def read(text: str) -> list[Form]:
    """The forms that a text may denote, at least one, the likeliest first."""
    if len(text) > LONGEST:
        raise Unreadable(f"the text has more than {LONGEST} characters")
    text = _PERCENT.sub("%", _without_label(clean(text)))
    if negative := _NEGATIVE.match(text):
        text = "-" + text[negative.end() :]
    text = _TEMPERATURE.sub(lambda found: rf"\text{{deg{found[1] or found[2]}}}", text)
    text = without_unit_fraction(_UNIT_FRACTION.sub(r"\\text{\1/\2}", text))
    text = _JOINING.sub(r" \1 ", text).replace("\\langle", "(").replace("\\rangle", ")").strip()
    if not text:
        raise Unreadable("it is empty")
    if _DOTS.search(text):  # a sequence that goes on: as it is written
        return [Words(_DOTS.sub("…", text).replace(" ", ""))]
    if date := words.read_date_or_time(text):
        return [Words(date)]
    if " and " in text and (amount := read_number_words(text)) is not None:
        return [amount]  # one and a half: no list
    time = words.read_bare_time(text)
    forms: list[Form] = [] if time is None else [Words(time)]
    problem: Unreadable | None = None
    for reading in _readings(text):
        try:
            forms.append(reading())
        except Unreadable as error:
            problem = problem or error
    if not forms and (said := read_number_words(text)) is not None:
        return [said]
    wrapped = _WRAPPED.fullmatch(text)
    if not forms and wrapped is not None and wrapped[1].strip():
        try:
            return read(wrapped[1])
        except Unreadable as error:
            problem = error
    if forms and (name := words.read_name(text)):  # a name first: BC is no CB
        forms.insert(0, Words(name))
    if not forms:
        name = words.read_words(text)
        if name is None:
            raise problem or Unreadable("the text is neither mathematics nor a word")
        forms.append(_known(name))
        if _LETTERS.fullmatch(text):  # abc is also the product of three numbers
            forms.append(Scalar(product_of(text)))
    return forms


def _without_label(text: str) -> str:
    """The text without words before it that say what it is: "the answer is"."""
    label = _LEADING.match(text)
    return text[label.end() :] if label else text


def _known(name: str) -> Form:
    known: Mapping[str, Form] = {"reals": EVERYTHING, "no solution": _NONE}
    return known.get(name, Words(name))


def _readings(text: str) -> list[Callable[[], Form]]:
    joined = _COMMAS.sub(lambda found: found.group().replace(",", ""), text)
    readings: list[Callable[[], Form]] = [lambda: _statements(joined)]
    if joined != text and not re.search(r",0", text):
        readings.append(lambda: _statements(text))
    bare = re.fullmatch(r"(-?[\d.]+)\s?([a-zA-Z])", joined)
    if bare and is_known_unit(bare[2]):  # 5m: five metres, or five times m
        unit, digits = read_unit(bare[2]), bare[1]
        readings.append(lambda: Scalar(read_expression(digits), unit))
        readings.append(lambda: Scalar(read_expression(joined)))
    return readings


def _statements(text: str) -> Form:
    """Statements joined by arrows: the last is the answer, the ones before it must hold."""
    parts, arrows = split(text, lambda token: token in _ARROWS)
    if not arrows:
        return _list(text)
    try:
        forms = [_list(part) for part in parts]
    except Unreadable as error:
        raise Untrue(f"a step before the answer cannot be read: {error}") from None
    last = forms[-1]
    if len(forms) == 2 and isinstance(forms[0], Scalar) and forms[0].node.op == "symbol":
        return Assigned(forms[0].node.name, last, forms[0].node)
    for form in forms[:-1]:
        if not _follows(form, last):
            raise Untrue("a step before the answer is not true, or cannot be shown to be true")
    return Chain((forms[0], last)) if all(isinstance(one, Scalar) for one in forms) else last


def _follows(step: Form, end: Form) -> bool:
    """Whether a step holds where the end does."""
    if isinstance(step, Chain):
        step = step.members[-1]
    if isinstance(end, Chain):
        end = end.members[-1]
    if isinstance(step, Scalar) and isinstance(end, Scalar):
        return close(step.node, end.node)
    if isinstance(end, Assigned):
        values = end.value.members if isinstance(end.value, Collection) else (end.value,)
        if isinstance(step, Assigned) and step.left is not None and isinstance(step.value, Scalar):
            step = Relation("=", step.left, step.value.node)
        if isinstance(step, Relation) and all(isinstance(one, Scalar) for one in values):
            return all(
                _holds(step, end.name, one.node) for one in values if isinstance(one, Scalar)
            )
    return False


def _holds(relation: Relation, name: str, value: Node) -> bool:
    left, right = (_put(side, name, value) for side in (relation.left, relation.right))
    if symbols(left) | symbols(right):
        return False
    if relation.sign == "=":
        return same_value(left, right)
    return within(left, right, closed=relation.sign == "<=")


def _put(node: Node, name: str, value: Node) -> Node:
    """The expression with a value in place of a symbol."""
    if node.op == "symbol":
        return value if node.name == name else node
    if not node.args:
        return node
    return Node(node.op, tuple(_put(part, name, value) for part in node.args), node.name)


def _list(text: str) -> Form:
    parts, signs = split(text, lambda token: token in (",", ";", "and", "or", "\\lor", "\\vee"))
    if not signs:
        return _relation(text)
    if not parts[0] or not parts[-1]:
        raise Unreadable("a list begins or ends without a member")
    parts = [part for part in parts if part]  # "1, 2, and 3" has nothing between the last two signs
    members = [_member(part) for part in parts]
    regions = [member for member in members if isinstance(member, Region)]
    if len(regions) == len(members) and set(signs) <= {"or", "\\lor", "\\vee"}:
        return united(regions)
    if len(members) == 1:
        return members[0]
    first = members[0]
    if isinstance(first, Assigned):
        rest = members[1:]
        same = [one.value for one in rest if isinstance(one, Assigned) and one.name == first.name]
        plain = [one for one in rest if isinstance(one, Scalar)]
        if len(same) == len(rest) or len(plain) == len(rest):
            return Assigned(first.name, _flat((first.value, *(same or plain))), first.left)
    return _flat(members)


def _member(text: str) -> Form:
    """A member of a list, which may be a word."""
    if name := words.read_name(text):
        return Words(name)
    try:
        return _relation(text)
    except Unreadable:
        name = words.read_words(text) if _PLAIN_WORDS.fullmatch(text) else None
        if name is None:
            raise
        return Words(name)


def _element(text: str) -> Form:
    """A member of a tuple or set."""
    name = words.read_name(text)
    return _value(text) if name is None else Words(name)


def _flat(members: Sequence[Form]) -> Form:
    """A list, in which ``\\pm 2`` is two members."""
    flat: list[Form] = []
    for member in members:
        flat += (
            member.members
            if isinstance(member, Collection) and member.kind == "list"
            else (member,)
        )
    return Collection("list", tuple(flat))


def _relation(text: str) -> Form:
    parts, signs = split(text, lambda token: token in _SIGNS)
    if not signs:
        return _value(text)
    if any(not part for part in parts):
        if set(signs) <= _LINKS:
            raise Unreadable("a side of an equation is empty")
        return OneSidedRelation(text.replace(" ", ""))
    if set(signs) <= _LINKS:
        return _chain(parts, signs)
    if set(signs) <= set(_ORDERS):
        return _order(
            parts,
            [_ORDERS[sign] for sign in signs],
            [sign in (">", "\\ge", ">=") for sign in signs],
        )
    if len(parts) == 2 and signs[0] == "\\in":
        name, value = _name(parts[0])[0], _value(parts[1])
        if not name or (isinstance(value, Scalar) and not symbols(value.node)):
            raise Unreadable("what is in the set, or the set, cannot be read")
        return Assigned(name, value)
    if len(parts) == 2 and signs[0] == "\\ne":
        left, right = read_expression(parts[0]), read_expression(parts[1])
        if left.op == "symbol" and not symbols(right):
            return without_points(Region(EVERYTHING.pieces, left.name), (right,))
    raise Unreadable(f"{signs[0]} is not supported")


def _chain(parts: list[str], signs: list[str]) -> Form:
    name, left = _name(parts[0])
    if not name and len(parts) == 2:
        name, left = _name(parts[1])
        parts = parts[::-1] if name else parts
    if name:
        values = [_value(part) for part in parts[1:]]
        _check_links(values, signs[1:])
        value = values[0] if len(values) == 1 else Chain(tuple(values))
        if left is not None and isinstance(value, Scalar) and left.name in symbols(value.node):
            return Relation("=", left, value.node)
        return Assigned(name, value, left)
    values = [_value(part) for part in parts]
    if len(values) == 2 and all(isinstance(one, Scalar) for one in values):
        sides = [one.node for one in values if isinstance(one, Scalar)]
        if any(map(symbols, sides)) and not same_value(sides[0], sides[1]):
            return Relation("=", sides[0], sides[1])
    _check_links(values, signs)
    return Chain(tuple(values))


def _check_links(values: Sequence[Form], signs: Sequence[str]) -> None:
    for sign, (first, second) in zip(signs, pairwise(values), strict=True):
        if isinstance(first, Scalar) and isinstance(second, Scalar):
            try:
                true = close(first.node, second.node, rounded=sign == "\\approx")
            except Unreadable:
                true = False
        else:
            true = first == second
        if not true:
            raise Untrue("a link of the chain is not true, or cannot be shown to be true")


def _name(text: str) -> tuple[str, Node | None]:
    """The name on the left of an equation: a variable, f(x), a word; "" for other expressions."""
    wrapped = _WRAPPED.fullmatch(text)
    if _CALLED.fullmatch(text):
        return text.replace(" ", ""), None
    try:
        node = read_expression(text)
    except Unreadable:
        letters = re.sub(r"\\text\s?\{([^{}]*)\}", r"\1", text).strip()
        is_name = wrapped or re.fullmatch(
            r"[A-Za-z][A-Za-z ]*(?:\s?\(.{1,20}\))?|\([a-z](?:,\s?[a-z])+\)", letters
        )
        denies = not _DENYING.isdisjoint(letters.lower().split())
        return (letters if is_name and not denies else ""), None
    if node.op == "symbol":
        return node.name, node
    return (text.replace(" ", "") if node.op == "apply" else ""), None


def _order(parts: list[str], signs: list[Literal["<", "<="]], turned: list[bool]) -> Form:
    """An inequality: of one variable and numbers it is a region, else a relation."""
    nodes = [read_expression(part) for part in parts]
    if len(nodes) == 2:
        low, high = (nodes[1], nodes[0]) if turned[0] else (nodes[0], nodes[1])
        closed = signs[0] == "<="
        if low.op == "symbol" and not symbols(high):
            return interval(None, high, closed, closed, low.name)
        if high.op == "symbol" and not symbols(low):
            return interval(low, None, closed, closed, high.name)
        if low.op == "abs" and low.args[0].op == "symbol" and not symbols(high):
            return interval(Node("neg", (high,)), high, closed, closed, low.args[0].name)
        if high.op == "abs" and high.args[0].op == "symbol" and not symbols(low):
            below = interval(None, Node("neg", (low,)), closed, closed, high.args[0].name)
            return united([below, interval(low, None, closed, closed, high.args[0].name)])
        return Relation("<=" if closed else "<", low, high)
    if len(nodes) == 3 and len(set(turned)) == 1 and nodes[1].op == "symbol":
        if turned[0]:
            nodes, signs = nodes[::-1], signs[::-1]
        if not symbols(nodes[0]) and not symbols(nodes[2]):
            return interval(nodes[0], nodes[2], signs[0] == "<=", signs[1] == "<=", nodes[1].name)
    raise Unreadable("an inequality of this kind is not supported")


def _value(text: str) -> Form:
    """Something without relations: a collection, a region, or a scalar."""
    if name := {"\\emptyset": "no solution", "\\mathbb{R}": "reals"}.get(text.replace(" ", "")):
        return _known(name)
    if (found := _MATRIX.fullmatch(text)) is not None:
        return _matrix(found[2])
    parts, signs = split(text, lambda token: token in ("\\cup", "\\setminus"))
    if signs:
        return _set_algebra(parts, signs)
    if (found := _REVERSED.fullmatch(text)) is not None:
        return interval(read_expression(found[1]), read_expression(found[2]), False, False)
    held = enclosed(text)
    if held is not None and (collection := _collection(*held)) is not None:
        return collection
    return read_scalar(text)


def _set_algebra(parts: list[str], signs: list[str]) -> Form:
    values = [_as_region(_value(part)) for part in parts]
    whole = values[0]
    for sign, value in zip(signs, values[1:], strict=True):
        if sign == "\\cup":
            whole = united([whole, value])
        elif all(one.low == one.high for one in value.pieces):
            whole = without_points(whole, [piece.low for piece in value.pieces])
        else:
            raise Unreadable("a difference of these sets is not supported")
    return whole


def _as_region(form: Form) -> Region:
    if isinstance(form, Region):
        return form
    if isinstance(form, Collection) and form.kind == "tuple" and len(form.members) == 2:
        low, high = form.members
        if isinstance(low, Scalar) and isinstance(high, Scalar):
            closed = form.brackets == "[]"
            return interval(low.node, high.node, closed, closed)
    if isinstance(form, Collection) and form.kind == "set":
        nodes = [one.node for one in form.members if isinstance(one, Scalar)]
        if len(nodes) == len(form.members):
            return Region(tuple(RegionPart(node, node, True, True) for node in nodes))
    raise Unreadable("a union has a part that is not a set of numbers")


def _collection(start: str, inside: str, end: str) -> Form | None:
    """What brackets hold; None for one expression in them."""
    if start == "\\{" or (start == "{" and ("," in inside or not inside)):
        return _set(inside)
    parts, signs = split(inside, lambda token: token in (",", ";"))
    if not signs:
        return None
    if (start, end) in (("[", ")"), ("(", "]")):
        if len(parts) != 2:
            raise Unreadable("an interval needs exactly two ends")
        return interval(
            read_expression(parts[0]), read_expression(parts[1]), start == "[", end == "]"
        )
    if (start, end) not in (("(", ")"), ("[", "]")):
        raise Unreadable("the brackets do not match")
    members = tuple(_element(part) for part in parts)
    if any(_is_infinite(member) for member in members) and len(members) == 2:
        low, high = (member.node for member in members if isinstance(member, Scalar))
        return interval(low, high, start == "[", end == "]")
    return Collection("tuple", members, start + end)


def _is_infinite(form: Form) -> bool:
    return isinstance(form, Scalar) and any(
        one.op == "constant" and one.name == "infty" for one in walk(form.node)
    )


def _set(inside: str) -> Form:
    if not inside:
        return _NONE
    parts, signs = split(inside, lambda token: token in ("|", ":"))
    if signs and len(parts) == 2:
        condition = _list(parts[1])
        if isinstance(condition, Region):
            return condition
        raise Unreadable("the condition of a set is not supported")
    members = split(inside, lambda token: token in (",", ";"))[0]
    flat = _flat([_element(part) for part in members])
    return Collection("set", flat.members if isinstance(flat, Collection) else (flat,))


def _matrix(inside: str) -> Form:
    rows = [row for row in inside.split("\\row") if row.strip()]
    made = tuple(
        Collection("tuple", tuple(_value(cell.strip()) for cell in row.split("&"))) for row in rows
    )
    if len({len(row.members) for row in made}) != 1:
        raise Unreadable("the rows of a matrix are of different lengths")
    return Collection("matrix", made)
