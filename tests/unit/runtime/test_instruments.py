"""The instruments count as prometheus_client's own do, and read the same when scraped."""

from __future__ import annotations

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from gymmesh_runtime.instruments import Counter, Gauge, Histogram

_BOUNDS = (0.1, 1.0, 10.0)


def _scrape(registry: CollectorRegistry) -> list[str]:
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if "_created" not in line]


@given(st.lists(st.floats(min_value=0, max_value=100), max_size=20))
def test_a_scrape_reads_as_the_librarys(values: list[float]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    spread = Histogram("spread", "Spread.", ["kind"], ours, _BOUNDS).labels("a")
    count = Counter("events_total", "Events.", [], ours)
    level = Gauge("level", "Level.", ["kind"], ours).labels("b")
    known_spread = prometheus_client.Histogram(
        "spread", "Spread.", ["kind"], registry=theirs, buckets=_BOUNDS
    ).labels("a")
    known_count = prometheus_client.Counter("events_total", "Events.", registry=theirs)
    known_level = prometheus_client.Gauge("level", "Level.", ["kind"], registry=theirs).labels("b")
    for value in values:
        for histogram in (spread, known_spread):
            histogram.observe(value)
        for counter in (count, known_count):
            counter.inc(value)
        for gauge in (level, known_level):
            gauge.inc(value)
            gauge.dec(1)
    assert _scrape(ours) == _scrape(theirs)


def test_bounds_belong_to_the_bucket_below_them() -> None:
    registry = CollectorRegistry()
    spread = Histogram("spread", "Spread.", [], registry, _BOUNDS).labels()
    for value in (0.1, 1.0, 10.0, 10.1):
        spread.observe(value)
    assert spread.counts == [1, 1, 1, 1]


def test_a_child_is_made_once_and_takes_as_many_values_as_labels() -> None:
    counter = Counter("events_total", "Events.", ["kind"], CollectorRegistry())
    assert counter.labels("a") is counter.labels("a")
    with pytest.raises(ValueError, match=r"events_total has the labels \('kind',\)"):
        counter.labels("a", "b")


def test_clear_forgets_the_children() -> None:
    registry = CollectorRegistry()
    gauge = Gauge("level", "Level.", ["kind"], registry)
    gauge.labels("a").set(3)
    gauge.clear()
    assert registry.get_sample_value("level", {"kind": "a"}) is None


def test_a_name_is_taken_once() -> None:
    registry = CollectorRegistry()
    Gauge("level", "Level.", [], registry)
    with pytest.raises(ValueError, match="level"):
        Gauge("level", "Level.", [], registry)
