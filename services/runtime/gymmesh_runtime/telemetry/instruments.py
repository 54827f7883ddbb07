"""Counters, gauges and histograms whose update costs a fraction of a microsecond.

A rollout with two model calls updates some 40 of them. prometheus_client guards each update with a
lock, which takes five to eight times as long, 36 µs of a rollout's 1,450. These are plain numbers
that the registry reads when it is scraped; exposition stays prometheus_client's.

Updates belong to the thread of the event loop; a scrape, in a thread of its own, changes nothing.

What counts for a rollout takes its id as well. Scraped as OpenMetrics, a counter and each bucket of
a histogram then name the last rollout that they counted, as an exemplar.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from time import time
from typing import Any, Final, Generic, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

_ROLLOUT_ID: Final = "rollout_id"
# What OpenMetrics allows the labels of an exemplar, names and values together, in characters.
_EXEMPLAR_CHARACTERS: Final = 128


#: What was counted last for a rollout: the value, the rollout's id, and seconds of Unix time.
_Example = tuple[float, str, float]


def _exemplar(example: _Example | None) -> Exemplar | None:
    """For prometheus_client; None for an id that is longer than OpenMetrics allows."""
    if example is None or len(_ROLLOUT_ID) + len(example[1]) > _EXEMPLAR_CHARACTERS:
        return None
    value, rollout_id, at = example
    return Exemplar({_ROLLOUT_ID: rollout_id}, value, at)


class CounterChild:
    """One number that only grows."""

    __slots__ = ("example", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self.example: _Example | None = None

    def inc(self, amount: float = 1.0, rollout_id: str = "") -> None:
        """Adds `amount`, which is not negative; rollout_id: the rollout that it counts."""
        self.value += amount
        if rollout_id:
            self.example = (amount, rollout_id, time())


class GaugeChild:
    """One number that goes up and down."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount

    def dec(self, amount: float = 1.0) -> None:
        self.value -= amount

    def set(self, value: float) -> None:
        self.value = value


class HistogramChild:
    """How observations are spread over buckets."""

    __slots__ = ("_bounds", "_counts", "_examples", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)  # of each bucket, the infinite one last
        self._total = 0.0
        self._examples: dict[int, _Example] = {}  # by bucket

    def observe(self, value: float, rollout_id: str = "") -> None:
        """Counts `value`, a number, in the first bucket whose upper bound it does not exceed.

        rollout_id: the rollout that it was observed of.
        """
        place = bisect_left(self._bounds, value)
        self._counts[place] += 1
        self._total += value
        if rollout_id:
            self._examples[place] = (value, rollout_id, time())

    def read(self) -> tuple[list[int], float]:
        """The count of each bucket, the infinite one last, and the sum of what was observed."""
        return self._counts.copy(), self._total

    def exemplars(self) -> list[Exemplar | None]:
        """The last one observed of a rollout, for each bucket, the infinite one last."""
        examples = self._examples.copy()
        return [_exemplar(examples.get(place)) for place in range(len(self._bounds) + 1)]


ChildT = TypeVar("ChildT", CounterChild, GaugeChild, HistogramChild)


class Family(Collector, Generic[ChildT]):
    """A metric and its children, one for each tuple of label values.

    It is exported once it has a child: a process tells nothing of services that it does not have.
    What must be there as zero from the start, its service asks for with `labels`.
    """

    _make: Callable[[], ChildT]

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str], registry: CollectorRegistry
    ) -> None:
        self.name = name
        self.documentation = documentation
        self.label_names = tuple(labels)
        self._children: dict[tuple[str, ...], ChildT] = {}
        registry.register(self)

    def labels(self, *values: str) -> ChildT:
        """The child for these label values; made when it is first asked for.

        Raises ValueError when there are not as many values as labels.
        """
        child = self._children.get(values)
        if child is None:
            if len(values) != len(self.label_names):
                raise ValueError(f"{self.name} has the labels {self.label_names}, not {values}")
            child = self._children[values] = self._make()
        return child

    def collect(self) -> Iterable[Metric]:
        """For prometheus_client."""
        return self.describe() if self._children else []

    def describe(self) -> Iterable[Metric]:
        """The same, without children, too: for the registry's check of names."""
        return [self._read()]

    @abstractmethod
    def _read(self) -> Metric: ...


class Counter(Family[CounterChild]):
    """Numbers that only grow. The name ends in `_total`."""

    _make = CounterChild

    def inc(self, amount: float = 1.0) -> None:
        """Adds to the one number of a counter without labels."""
        self.labels().inc(amount)

    def _read(self) -> Metric:
        family = CounterMetricFamily(self.name, self.documentation, labels=self.label_names)
        for values, child in list(self._children.items()):
            family.add_metric(values, child.value, exemplar=_exemplar(child.example))
        return family


class Gauge(Family[GaugeChild]):
    """Numbers that go up and down."""

    _make = GaugeChild

    def set(self, value: float) -> None:
        """Sets the one number of a gauge without labels."""
        self.labels().set(value)

    def replace(self, values: Mapping[tuple[str, ...], int]) -> None:
        """Has these children, by their label values, and no others, from one moment to the next."""
        children = {labels: GaugeChild() for labels in values}
        for labels, value in values.items():
            children[labels].set(value)
        self._children = children

    def _read(self) -> Metric:
        family = GaugeMetricFamily(self.name, self.documentation, labels=self.label_names)
        for values, child in list(self._children.items()):
            family.add_metric(values, child.value)
        return family


class Histogram(Family[HistogramChild]):
    """Distributions. `buckets` are upper bounds, ascending; the infinite one is added."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        registry: CollectorRegistry,
        buckets: Sequence[float],
    ) -> None:
        go_string: Any = floatToGoString  # the library has no type for it
        self._bounds = tuple(buckets)
        self._marks = [*map(go_string, buckets), "+Inf"]
        self._make = partial(HistogramChild, self._bounds)
        super().__init__(name, documentation, labels, registry)

    @property
    def has_sum(self) -> bool:
        """Whether there are a `_sum` and a `_count`.

        OpenMetrics forbids them where a bucket lies below 0: a sum that goes down looks like a
        restart. prometheus_client leaves both out then.
        """
        return not self._bounds or self._bounds[0] >= 0

    def _read(self) -> Metric:
        """With cumulative counts, as prometheus_client wants them."""
        family = HistogramMetricFamily(self.name, self.documentation, labels=self.label_names)
        for values, child in list(self._children.items()):
            counts, total = child.read()
            seen = 0
            buckets: list[Any] = []  # the library's type has no exemplar that is None
            for mark, count, exemplar in zip(self._marks, counts, child.exemplars(), strict=True):
                seen += count
                buckets.append((mark, seen, exemplar))
            family.add_metric(values, buckets, total)
        return family
