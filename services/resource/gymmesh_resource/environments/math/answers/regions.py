"""Parts of the real line: intervals, their unions, and what is left without some points. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key

from mpmath import mp

from gymmesh_resource.environments.math.answers.evaluation import NoValue, approximate
from gymmesh_resource.environments.math.answers.forms import Region, RegionPart
from gymmesh_resource.environments.math.answers.nodes import Node, Unreadable
from gymmesh_resource.environments.math.answers.numbers import same_value

_INFINITY = Node("constant", name="infty")
_LEAST = Node("neg", (_INFINITY,))
EVERYTHING = Region((RegionPart(_LEAST, _INFINITY, False, False),))


def interval(
    low: Node | None, high: Node | None, low_closed: bool, high_closed: bool, name: str = ""
) -> Region:
    """One interval; None is no bound."""
    low, high = low or _LEAST, high or _INFINITY
    piece = RegionPart(
        low, high, low_closed and not _is_infinite(low), high_closed and not _is_infinite(high)
    )
    return Region((piece,), name)


def without_points(region: Region, points: Sequence[Node]) -> Region:
    """The region without some points. Raises `Unreadable` for ends and points like a+b."""
    pieces = list(region.pieces)
    for point in points:
        pieces = [part for piece in pieces for part in _without(piece, point)]
    return Region(tuple(pieces), region.name)


def united(regions: Sequence[Region]) -> Region:
    """The union, as pieces in order that do not touch. Raises `Unreadable` for ends like a+b."""
    pieces = [piece for region in regions for piece in region.pieces]
    pieces.sort(key=cmp_to_key(_compare_lows))
    merged: list[RegionPart] = []
    for piece in pieces:
        if merged and _touch(merged[-1], piece):
            merged[-1] = _joined(merged[-1], piece)
        else:
            merged.append(piece)
    names = {region.name for region in regions}
    return Region(tuple(merged), names.pop() if len(names) == 1 else "")


def same_region(expected: Region, answer: Region) -> bool:
    """Whether two regions are one."""
    if expected.name and answer.name and expected.name != answer.name:
        return False
    first, second = united([expected]).pieces, united([answer]).pieces
    return len(first) == len(second) and all(map(_same_piece, first, second))


def within(low: Node, high: Node, *, closed: bool) -> bool:
    """Whether ``low < high``, or ``low <= high`` where `closed`."""
    order = _compare(low, high)
    return order < 0 or (closed and order == 0)


def _without(piece: RegionPart, point: Node) -> list[RegionPart]:
    """What is left of an interval without a point."""
    from_low, to_high = _compare(piece.low, point), _compare(point, piece.high)
    if from_low > 0 or to_high > 0:
        return [piece]
    left = RegionPart(piece.low, point, piece.low_closed, False)
    right = RegionPart(point, piece.high, False, piece.high_closed)
    return [part for part, order in ((left, from_low), (right, to_high)) if order < 0]


def _same_piece(first: RegionPart, second: RegionPart) -> bool:
    return (
        (first.low_closed, first.high_closed) == (second.low_closed, second.high_closed)
        and same_value(first.low, second.low)
        and same_value(first.high, second.high)
    )


def _touch(first: RegionPart, second: RegionPart) -> bool:
    order = _compare(second.low, first.high)
    return order < 0 or (order == 0 and (first.high_closed or second.low_closed))


def _joined(first: RegionPart, second: RegionPart) -> RegionPart:
    lows, highs = _compare(first.low, second.low), _compare(first.high, second.high)
    low_closed = first.low_closed or (lows == 0 and second.low_closed)
    if highs == 0:
        return RegionPart(
            first.low, first.high, low_closed, first.high_closed or second.high_closed
        )
    last = first if highs > 0 else second
    return RegionPart(first.low, last.high, low_closed, last.high_closed)


def _compare_lows(first: RegionPart, second: RegionPart) -> int:
    return _compare(first.low, second.low)


def _compare(first: Node, second: Node) -> int:
    if first == second:
        return 0
    try:
        one, other = approximate(first), approximate(second)
    except NoValue:
        raise Unreadable("the ends of an interval are not numbers") from None
    if mp.im(one) or mp.im(other):
        raise Unreadable("the ends of an interval are not real")
    with mp.workdps(40):
        difference = 0 if one == other else one - other
        return (
            0
            if not difference or abs(difference) < mp.mpf(10) ** -40
            else (1 if difference > 0 else -1)
        )


def _is_infinite(node: Node) -> bool:
    return node in (_INFINITY, _LEAST) or (node.op == "neg" and node.args[0] == _INFINITY)
