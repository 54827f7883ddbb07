"""The instruments count as prometheus_client's own do, and read the same when scraped."""

from __future__ import annotations

import threading

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from gymmesh_runtime.telemetry.instruments import Counter, Gauge, Histogram

_BOUNDS = (0.1, 1.0, 10.0)


def _scrape(registry: CollectorRegistry) -> list[str]:
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if "_created" not in line]


@given(st.lists(st.floats(min_value=0, max_value=100) | st.sampled_from(_BOUNDS), max_size=20))
def test_a_scrape_reads_as_the_librarys(values: list[float]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    spread = Histogram("spread", "Spread.", ["kind"], ours, _BOUNDS).labels("a")
    count = Counter("events_total", "Events.", [], ours)
    count.labels()
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


def test_a_family_is_exported_once_it_has_something_to_tell() -> None:
    """Its name is taken before, all the same."""
    registry = CollectorRegistry(auto_describe=True)
    events = Counter("events_total", "Events.", [], registry)
    level = Gauge("level", "Level.", ["kind"], registry)
    assert _scrape(registry) == []
    with pytest.raises(ValueError, match="Duplicated"):
        Counter("events_total", "Others.", [], registry)
    events.labels()
    assert _scrape(registry)[-1] == "events_total 0.0"
    level.replace({("a",): 1})
    assert _scrape(registry)[-1] == 'level{kind="a"} 1.0'


def test_scrapes_in_another_thread_lose_no_observation_and_see_none_go() -> None:
    registry = CollectorRegistry()
    spread = Histogram("spread", "Spread.", [], registry, _BOUNDS).labels()
    seen: list[float] = [0.0]
    over = threading.Event()

    def scrape() -> None:
        while not over.is_set():
            seen.append(registry.get_sample_value("spread_count") or 0.0)

    thread = threading.Thread(target=scrape)
    thread.start()
    for _ in range(100_000):
        spread.observe(1.0)
    over.set()
    thread.join(timeout=30)
    assert seen == sorted(seen)
    assert registry.get_sample_value("spread_count") == 100_000.0


def test_a_child_is_made_once_and_takes_as_many_values_as_labels() -> None:
    counter = Counter("events_total", "Events.", ["kind"], CollectorRegistry())
    assert counter.labels("a") is counter.labels("a")
    with pytest.raises(ValueError, match=r"events_total has the labels \('kind',\)"):
        counter.labels("a", "b")


def test_replace_leaves_no_other_children() -> None:
    registry = CollectorRegistry()
    gauge = Gauge("level", "Level.", ["kind"], registry)
    gauge.labels("a").set(3)
    gauge.replace({("b",): 4})
    assert registry.get_sample_value("level", {"kind": "a"}) is None
    assert registry.get_sample_value("level", {"kind": "b"}) == 4


def test_a_name_is_taken_once() -> None:
    registry = CollectorRegistry()
    Gauge("level", "Level.", [], registry)
    with pytest.raises(ValueError, match="level"):
        Gauge("level", "Level.", [], registry)


@pytest.mark.parametrize(("bounds", "has_sum"), [((0.0, 1.0), True), ((-1.0, 0.0), False)])
def test_buckets_below_0_allow_no_sum(bounds: tuple[float, ...], has_sum: bool) -> None:
    registry = CollectorRegistry()
    histogram = Histogram("spread", "Spread.", [], registry, bounds)
    histogram.labels().observe(0.5)
    names = {line.partition(" ")[0].partition("{")[0] for line in _scrape(registry)}
    assert histogram.has_sum == has_sum
    assert names >= {"spread_bucket", "spread_count"}
    assert ("spread_sum" in names) == has_sum
