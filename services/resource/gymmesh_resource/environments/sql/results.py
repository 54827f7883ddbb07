"""Whether two query results are the same answer. Pure.

Columns are compared by position, or in any order; their names never count. Rows are compared in
order only where the expected query orders them, else as many times as they occur (or, as the
BIRD benchmark does, as sets). 1 and 1.0 are one value; floats are compared within a relative
tolerance, so that 0 equals 0 only; texts exactly; NULL equals NULL, and NaN, which an engine gives
as one object, NaN; "1" is not 1.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

ResultRow: TypeAlias = "tuple[Any, ...]"

# Orders of columns that are tried; results with more that look alike are compared by position.
_ORDERS = 200
# Rows that differ in floats only and are matched one by one.
_MATCHED = 1_000


@dataclass(frozen=True, slots=True)
class QueryResult:
    """A result: names of columns, rows, and whether that is all of it."""

    columns: Sequence[str]
    rows: Sequence[ResultRow]
    complete: bool = True


@dataclass(frozen=True, slots=True)
class ComparisonRules:
    """How results are compared.

    ordered: whether the order of rows counts. rows: as often as they occur, or as a set and
    then exactly. columns: by position, or in any order. tolerance: relative, of floats.
    """

    ordered: bool = False
    rows: Literal["multiset", "set"] = "multiset"
    columns: Literal["kept", "free"] = "kept"
    tolerance: float = 1e-6


def compare(expected: QueryResult, answer: QueryResult, how: ComparisonRules) -> str | None:
    """What sets the results apart, in a few words, or None where they are the same."""
    if len(expected.columns) != len(answer.columns):
        return f"{len(answer.columns)} columns instead of {len(expected.columns)}"
    if how.rows == "set":
        return None if set(expected.rows) == set(answer.rows) else "other rows"
    if len(expected.rows) != len(answer.rows):
        return f"{len(answer.rows)} rows instead of {len(expected.rows)}"
    for order in _orders(expected, answer, how):
        rows = [tuple(row[place] for place in order) for row in answer.rows]
        if _same_rows(expected.rows, rows, how):
            return None
    if how.ordered and _same_bag(expected.rows, answer.rows, how.tolerance):
        return "the rows in another order"
    return "other rows"


def _orders(
    expected: QueryResult, answer: QueryResult, how: ComparisonRules
) -> Iterator[tuple[int, ...]]:
    """Ways to put the answer's columns in the expected order; the order as it is comes first."""
    width = len(expected.columns)
    yield tuple(range(width))
    if how.columns == "kept":
        return
    choices = [
        [
            place
            for place in range(width)
            if _same_bag(_column(expected, wanted), _column(answer, place), how.tolerance)
        ]
        for wanted in range(width)
    ]
    for count, order in enumerate(_assignments(choices, ())):
        if count == _ORDERS:
            return
        yield order


def _assignments(choices: list[list[int]], taken: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if len(taken) == len(choices):
        yield taken
        return
    for place in choices[len(taken)]:
        if place not in taken:
            yield from _assignments(choices, (*taken, place))


def _column(result: QueryResult, place: int) -> list[ResultRow]:
    return [(row[place],) for row in result.rows]


def _same_rows(
    expected: Sequence[ResultRow], answer: Sequence[ResultRow], how: ComparisonRules
) -> bool:
    if not how.ordered:
        return _same_bag(expected, answer, how.tolerance)
    pairs = zip(expected, answer, strict=True)
    return all(_same_row(left, right, how.tolerance) for left, right in pairs)


def _same_bag(expected: Iterable[ResultRow], answer: Iterable[ResultRow], tolerance: float) -> bool:
    """Whether rows are the same, however ordered: exactly first, then what is left by floats."""
    left, right = Counter(expected), Counter(answer)
    missing, surplus = left - right, right - left
    if missing.total() != surplus.total():
        return False
    groups = _by_exact_part(missing), _by_exact_part(surplus)
    return groups[0].keys() == groups[1].keys() and all(
        _match(rows, groups[1][key], tolerance) for key, rows in groups[0].items()
    )


def _by_exact_part(rows: Counter[ResultRow]) -> dict[ResultRow, list[ResultRow]]:
    """Rows by what of them is no number."""
    groups: defaultdict[ResultRow, list[ResultRow]] = defaultdict(list)
    for row in rows.elements():
        key = tuple("#" if _is_number(value) else (value,) for value in row)
        groups[key].append(row)
    return groups


def _match(expected: list[ResultRow], answer: list[ResultRow], tolerance: float) -> bool:
    """Match rows one by one; so many that this would take long are matched in sorted order."""
    if len(expected) != len(answer):
        return False
    if len(expected) > _MATCHED:
        pairs = zip(sorted(expected, key=_numbers), sorted(answer, key=_numbers), strict=True)
        return all(_same_row(left, right, tolerance) for left, right in pairs)
    free = sorted(answer, key=_numbers)
    for row in sorted(expected, key=_numbers):
        for index, other in enumerate(free):
            if _same_row(row, other, tolerance):
                del free[index]
                break
        else:
            return False
    return True


def _numbers(row: ResultRow) -> tuple[float, ...]:
    return tuple(value for value in row if _is_number(value))


def _same_row(left: ResultRow, right: ResultRow, tolerance: float) -> bool:
    return all(_same_value(*pair, tolerance) for pair in zip(left, right, strict=True))


def _same_value(left: Any, right: Any, tolerance: float) -> bool:
    if left is right or left == right:
        return True
    if not (_is_number(left) and _is_number(right)):
        return False
    if isinstance(left, int) and isinstance(right, int):
        return False
    return math.isclose(left, right, rel_tol=tolerance)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and value == value
