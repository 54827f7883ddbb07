"""What a picture says in words: numbers with units, names of series, queries filled in."""

from __future__ import annotations

import pytest

from deploy.observe.asking import Series, filled_in
from deploy.observe.picture import written


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, "s", "0"),
        (0.00025, "s", "250 µs"),
        (0.02, "s", "20 ms"),
        (75.0, "s", "75 s"),
        (0.375, "percentunit", "37.5 %"),
        (3 * 2**20, "bytes", "3 MiB"),
        (1234.0, "ops", "1.23 k/s"),
        (0.5, "ops", "0.5 /s"),
        (12.0, "short", "12"),
        (-2500.0, "short", "-2.5 k"),
    ],
)
def test_numbers(value: float, unit: str, text: str) -> None:
    assert written(value, unit) == text


def test_series_are_called_as_the_legend_says() -> None:
    one = Series({"model": "policy", "direction": "input"}, [])
    assert one.named("{{model}} {{ direction }} p95") == "policy input p95"
    assert one.named("{{tool}} calls") == "calls"
    assert one.named("__auto") == "policy, input"


def test_what_grafana_would_put_in() -> None:
    asked = 'rate(x{agent=~"$agent",job=~"$job"}[$__rate_interval])'
    assert filled_in(asked, "5m", {"job": "mesh"}) == 'rate(x{agent=~".*",job=~"mesh"}[5m])'
