"""Whether an answer's form denotes what the expected one does. Pure.

Sets have no order and no repeated members; lists without brackets have no order, but their
members count; pairs and longer tuples have an order. A name (``x = 5``) may be missing on either
side, and so may a unit, but two names or two units must be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from gymmesh_resource.environments.math.answers.evaluation import symbols
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
from gymmesh_resource.environments.math.answers.numbers import proportional, same_value
from gymmesh_resource.environments.math.answers.regions import interval, same_region
from gymmesh_resource.environments.math.answers.units import (
    DEGREE,
    NO_UNIT,
    RADIAN,
    Unit,
    is_known_unit,
)

_MOST_MEMBERS = 200

Same = Callable[[Node, Node, Fraction], bool]


class FormComparison:
    """Compares forms; `same` says whether two expressions are one value, with a factor.

    Raises `Unreadable` where an expression cannot be calculated.
    """

    def __init__(self, same: Same = same_value) -> None:
        self._same = same

    def equal(self, expected: Form, answer: Form) -> bool:
        """Whether the answer denotes what is expected."""
        match expected, answer:
            case Chain(members), _:
                return any(self.equal(member, answer) for member in members)
            case _, Chain(members):
                return any(self.equal(expected, member) for member in members)
            case Assigned(), Assigned():
                return _names_agree(expected, answer) and self.equal(expected.value, answer.value)
            case Relation(), Assigned():
                turned = _as_relation(answer)
                return turned is not None and _same_relation(expected, turned)
            case Assigned(), Relation():
                turned = _as_relation(expected)
                return turned is not None and _same_relation(turned, answer)
            case Assigned(_, value), _:
                return self.equal(value, answer)
            case Region(), Assigned():
                return _name_of(answer, expected.name) and self.equal(expected, answer.value)
            case _, Assigned(_, value):
                return self.equal(expected, value)
            case Relation(), Relation():
                return _same_relation(expected, answer)
            case Scalar(), Relation():
                return self._result(expected, answer)
            case Scalar(), Scalar():
                return self._scalars(expected, answer)
            case Words(first), Words(second):
                return first == second
            case OneSidedRelation(first), OneSidedRelation(second):
                return first == second
            case _, _ if Region in (type(expected), type(answer)):
                first_region, second_region = _region(expected), _region(answer)
                return (
                    first_region is not None
                    and second_region is not None
                    and same_region(first_region, second_region)
                )
            case Collection(), Collection():
                return self._items(expected, answer)
            case Collection(), _:
                return _is_single(expected) and self.equal(expected.members[0], answer)
            case _, Collection():
                return _is_single(answer) and self.equal(expected, answer.members[0])
        return False

    def _result(self, expected: Scalar, answer: Relation) -> bool:
        """``x + y = 5`` answers what x + y is; ``2x = 10`` answers nothing."""
        plain = not any(one.op in ("number", "constant") for one in walk(answer.left))
        return (
            answer.sign == "="
            and plain
            and not symbols(expected.node)
            and self._scalars(expected, Scalar(answer.right))
        )

    def _scalars(self, expected: Scalar, answer: Scalar) -> bool:
        wanted, given = _unit(expected), _unit(answer)
        if wanted is None and given == DEGREE and _has_pi(expected.node):
            wanted = RADIAN
        if given is None and wanted == DEGREE and _has_pi(answer.node):
            given = RADIAN
        if wanted is None or given is None or wanted == given:
            return self._same(expected.node, answer.node, Fraction(1))
        if {wanted, given} == {DEGREE, RADIAN}:
            nodes = [
                Node("deg", (one.node,)) if unit == DEGREE else one.node
                for one, unit in ((expected, wanted), (answer, given))
            ]
            return self._same(nodes[0], nodes[1], Fraction(1))
        if wanted.powers == given.powers:
            return self._same(expected.node, answer.node, given.scale / wanted.scale)
        return _same_things(wanted, given) and self._same(expected.node, answer.node, Fraction(1))

    def _items(self, expected: Collection, answer: Collection) -> bool:
        wanted, given = expected.members, answer.members
        if max(len(wanted), len(given)) > _MOST_MEMBERS:
            raise Unreadable(f"the expression has more than {_MOST_MEMBERS} members")
        kinds = (expected.kind, answer.kind)
        if kinds == ("set", "set"):
            return self._cover(wanted, given) and self._cover(given, wanted, turned=True)
        if "ratio" in kinds or "matrix" in kinds:
            return self._table(expected, answer)
        if kinds == ("tuple", "tuple"):
            brackets = {expected.brackets, answer.brackets}
            return (len(wanted) != 2 or len(brackets) == 1) and self._ordered(wanted, given)
        if "tuple" in kinds:
            return "set" not in kinds and self._ordered(_by_name(wanted), _by_name(given))
        if expected.kind == "set":
            wanted = self._without_repeats(wanted)
        if answer.kind == "set":
            given = self._without_repeats(given)
        if _named(wanted) and not any(isinstance(one, Assigned) for one in given):
            return self._ordered(_by_name(wanted), given)
        return self._matched(wanted, given)

    def _table(self, expected: Collection, answer: Collection) -> bool:
        if expected.kind == answer.kind:
            return self._ordered(expected.members, answer.members)
        column, line = (expected, answer) if expected.kind == "matrix" else (answer, expected)
        if column.kind != "matrix" or line.kind != "tuple":
            return False
        rows = [row.members for row in column.members if isinstance(row, Collection)]
        if len(rows) != 1 and any(len(row) != 1 for row in rows):
            return False
        flat = rows[0] if len(rows) == 1 else tuple(row[0] for row in rows)
        if column is expected:
            return self._ordered(flat, line.members)
        return self._ordered(line.members, flat)

    def _ordered(self, expected: Sequence[Form], answer: Sequence[Form]) -> bool:
        return len(expected) == len(answer) and all(map(self.equal, expected, answer))

    def _matched(self, expected: Sequence[Form], answer: Sequence[Form]) -> bool:
        """Whether each has its own counterpart, in any order."""
        if len(expected) != len(answer):
            return False
        left = list(answer)
        for one in expected:
            at = next((at for at, other in enumerate(left) if self.equal(one, other)), None)
            if at is None:
                return False
            del left[at]
        return True

    def _cover(self, some: Sequence[Form], others: Sequence[Form], *, turned: bool = False) -> bool:
        return all(
            any(self.equal(other, one) if turned else self.equal(one, other) for other in others)
            for one in some
        )

    def _without_repeats(self, members: Sequence[Form]) -> tuple[Form, ...]:
        kept: list[Form] = []
        for one in members:
            if not any(self.equal(other, one) for other in kept):
                kept.append(one)
        return tuple(kept)


def _names_agree(expected: Assigned, answer: Assigned) -> bool:
    applied = any(one.left is None for one in (expected, answer))
    return expected.name == answer.name or applied


def _name_of(answer: Assigned, name: str) -> bool:
    return not name or name == answer.name


def _as_relation(form: Assigned) -> Relation | None:
    if form.left is None or not isinstance(form.value, Scalar):
        return None
    return Relation("=", form.left, form.value.node)


def _same_relation(expected: Relation, answer: Relation) -> bool:
    """Whether the differences of the sides are one, but for a factor (positive, of an order)."""
    if (expected.sign == "=") != (answer.sign == "=") or (
        expected.sign != "=" and expected.sign != answer.sign
    ):
        return False
    first = Node("sub", (expected.left, expected.right))
    second = Node("sub", (answer.left, answer.right))
    return proportional(first, second, positive=expected.sign != "=")


def _unit(scalar: Scalar) -> Unit | None:
    return None if scalar.unit == NO_UNIT else scalar.unit


def _has_pi(node: Node) -> bool:
    return any(one.op == "constant" and one.name == "pi" for one in walk(node))


def _same_things(first: Unit, second: Unit) -> bool:
    """Whether the words of one are among the other's, where none is a unit: (red) apples."""
    names = [{name for name, _ in unit.powers} for unit in (first, second)]
    known = any(is_known_unit(name) for name in names[0] | names[1])
    return not known and (names[0] <= names[1] or names[1] <= names[0])


def _region(form: Form) -> Region | None:
    if isinstance(form, Region):
        return form
    if not isinstance(form, Collection):
        return None
    if form.kind == "set":
        return _points(form)
    if form.kind != "tuple" or len(form.members) != 2:
        return None
    low, high = form.members
    if not isinstance(low, Scalar) or not isinstance(high, Scalar):
        return None
    closed = form.brackets == "[]"
    return interval(low.node, high.node, closed, closed)


def _points(members: Collection) -> Region | None:
    """A set of numbers as a part of the line; None for a set of other things."""
    nodes = [one.node for one in members.members if isinstance(one, Scalar)]
    if len(nodes) < len(members.members):
        return None
    return Region(tuple(RegionPart(node, node, True, True) for node in nodes))


def _is_single(items: Collection) -> bool:
    return items.kind in ("set", "list") and len(items.members) == 1


def _named(members: Sequence[Form]) -> bool:
    names = {one.name for one in members if isinstance(one, Assigned)}
    return len(names) == len(members)


def _by_name(members: Sequence[Form]) -> Sequence[Form]:
    """Values of names, in the alphabetical order of these: x = 1, y = 2 is also (1, 2)."""
    if not _named(members):
        return members
    named = [one for one in members if isinstance(one, Assigned)]
    return [one.value for one in sorted(named, key=lambda one: one.name)]
