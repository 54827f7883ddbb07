"""Which values and outputs are the expected ones."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from gymmesh_resource.environments.code.compare import same_output, same_value

NAN = float("nan")


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ("0010", '"0010"'),
        (10, "10"),
        (10.0, "10"),
        (10, "10.0"),
        (3.000001, "3"),
        (0.1 + 0.2, "0.3"),
        ([0.1 + 0.2, [1 / 3]], "[0.3, [0.3333333333]]"),
        (123456789.0004, "123456789"),
        (1e20, "100000000000000000000"),
        (Decimal("0.5"), "0.5"),
        (Fraction(1, 3), "0.33333333"),
        (float("inf"), "Infinity"),
        (NAN, "NaN"),
        (True, "true"),
        (None, "null"),
        ((1, (2, "3")), '[1, [2, "3"]]'),
        ({"b": [2.0], "a": 1}, '{"a": 1, "b": [2]}'),
        ({1: "x", 2: "y"}, '{"2": "y", "1": "x"}'),
    ],
)
def test_the_expected_value(actual: Any, expected: str) -> None:
    assert same_value(actual, json.loads(expected))


# Values of another type or number that NeMo Gym's rule accepts.
ACCEPTED_BY_NEMO: list[tuple[Any, str]] = [
    ("10", '"0010"'),
    ("7", '"007"'),
    ("1.1", '"1.10"'),
    ("10", '"1e1"'),
    ("5", '"+5"'),
    ("Infinity", '"inf"'),
    (3, '"3"'),
    ("3", "3"),
    (3.000001, '"3"'),
    ("123.0004", '"123"'),
    (b"3", "3"),
    (True, "1.0"),
    (True, "1"),
    (1, "true"),
    ([True, 0], "[1, false]"),
    (100001.0, "100000"),
]


@pytest.mark.parametrize(("actual", "expected"), ACCEPTED_BY_NEMO)
def test_another_value_that_nemo_gym_accepts(actual: Any, expected: str) -> None:
    assert not same_value(actual, json.loads(expected))
    assert same_value(actual, json.loads(expected), nemo=True)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (11, "10"),
        (100001, "100000"),
        ("a ", '"a"'),
        ([1, 2], "[2, 1]"),
        ([1], "[1, 1]"),
        ([1], "1"),
        (["10"], '["010"]'),
        ({1, 2}, "[1, 2]"),
        ("12", '["1", "2"]'),
        ({"a": 1}, '{"a": 1, "b": null}'),
        ({1: 1, "1": 1}, '{"1": 1}'),
        (1, "Infinity"),
        (0, "null"),
        (None, "0"),
        (complex(4, 1), "4"),
    ],
)
def test_another_value(actual: Any, expected: str) -> None:
    assert not same_value(actual, json.loads(expected))


@pytest.mark.parametrize(
    ("actual", "expected"),
    [("1.50 2", "1.5 2.0"), ("007 1.50", "007 1.5"), ("1e3", "1000"), ("-0.0", "0"), (".5", "0.5")],
)
def test_the_same_numbers_in_a_line(actual: str, expected: str) -> None:
    assert same_output(actual, expected)


@pytest.mark.parametrize(
    ("actual", "expected"), [("1_000", "1000"), ("10", "0010"), ("7", "007"), ("-05", "-5")]
)
def test_other_text_that_nemo_gym_reads_as_the_number(actual: str, expected: str) -> None:
    assert not same_output(actual, expected)
    assert same_output(actual, expected, nemo=True)
