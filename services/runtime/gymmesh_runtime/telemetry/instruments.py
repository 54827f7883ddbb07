"""Counters, gauges and histograms of prometheus_client. A metric is exported once it has a value.

Metrics about rollouts also accept the rollout's id. In the OpenMetrics format, a counter and each
bucket of a histogram then name, as an exemplar, the last rollout that they counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

import prometheus_client
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

IS_FACE = True  # see tools/import_faces.py

_ROLLOUT_ID: Final = "rollout_id"
# What OpenMetrics allows the labels of an exemplar, names and values together, in characters.
_EXEMPLAR_CHARACTERS: Final = 128


def _exemplar(rollout_id: str) -> dict[str, str] | None:
    """For prometheus_client; None for no id, or one that is longer than OpenMetrics allows."""
    if not rollout_id or len(_ROLLOUT_ID) + len(rollout_id) > _EXEMPLAR_CHARACTERS:
        return None
    return {_ROLLOUT_ID: rollout_id}


def _number(child: Collector) -> float:
    """The first sample of a counter or gauge."""
    (metric,) = child.collect()
    return metric.samples[0].value


class CounterChild(prometheus_client.Counter):
    """One number that only grows."""

    @property
    def value(self) -> float:
        """The value for a scrape."""
        return _number(self)

    def inc(self, amount: float = 1.0, rollout_id: str = "") -> None:  # type: ignore[override]  # an id makes the exemplar
        """Adds `amount`, which is not negative. rollout_id: the rollout that is counted."""
        super().inc(amount, _exemplar(rollout_id))


class GaugeChild(prometheus_client.Gauge):
    """One number that goes up and down."""

    @property
    def value(self) -> float:
        """The value for a scrape."""
        return _number(self)


class HistogramChild(prometheus_client.Histogram):
    """How observations are spread over buckets."""

    def observe(self, amount: float, rollout_id: str = "") -> None:  # type: ignore[override]  # as above
        """Counts `amount` in the first bucket whose upper bound it does not exceed.

        rollout_id: the rollout of this observation.
        """
        super().observe(amount, _exemplar(rollout_id))


ChildT = TypeVar("ChildT", CounterChild, GaugeChild, HistogramChild)


class Family(Collector, Generic[ChildT]):
    """A metric and its children, one for each tuple of label values.

    It is exported once it has a child, so a process exports nothing about services that it does not
    have. To export a zero from the start, a service calls `labels`.
    """

    def __init__(
        self, metric: ChildT, name: str, labels: Sequence[str], registry: CollectorRegistry
    ) -> None:
        """metric: the library's, in no registry."""
        self.name = name
        self.label_names = tuple(labels)
        self._metric: ChildT = metric
        self._children: dict[tuple[str, ...], ChildT] = {}
        registry.register(self)

    def labels(self, *values: str) -> ChildT:
        """The child for these label values, which is created on first use.

        Raises ValueError if the number of values differs from the number of labels.
        """
        child = self._children.get(values)
        if child is None:
            if len(values) != len(self.label_names):
                raise ValueError(f"{self.name} has the labels {self.label_names}, not {values}")
            child = self._metric.labels(*values) if values else self._metric
            self._children[values] = child
        return child

    def collect(self) -> Iterable[Metric]:
        """For prometheus_client."""
        if not self._children:
            return
        for metric in self._metric.collect():
            # When a number was begun says nothing that the process's own start does not.
            metric.samples = [one for one in metric.samples if not one.name.endswith("_created")]
            yield metric

    def describe(self) -> Iterable[Metric]:
        """Like `collect`, also without children: for the registry's check of names."""
        described: Iterable[Metric] = self._metric.describe()
        return described


class Counter(Family[CounterChild]):
    """Numbers that only grow. The name ends in `_total`."""

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str], registry: CollectorRegistry
    ) -> None:
        super().__init__(
            CounterChild(name, documentation, labels, registry=None), name, labels, registry
        )

    def inc(self, amount: float = 1.0) -> None:
        """Adds to the one number of a counter without labels."""
        self.labels().inc(amount)


class Gauge(Family[GaugeChild]):
    """Numbers that go up and down."""

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str], registry: CollectorRegistry
    ) -> None:
        self._make = partial(GaugeChild, name, documentation, labels, registry=None)
        super().__init__(self._make(), name, labels, registry)

    def set(self, value: float) -> None:
        """Sets the one number of a gauge without labels."""
        self.labels().set(value)

    def replace(self, values: Mapping[tuple[str, ...], int]) -> None:
        """Replaces all children at once by these values, by their labels."""
        metric = self._make()
        children = {labels: metric.labels(*labels) for labels in values}
        for labels, value in values.items():
            children[labels].set(value)
        self._metric, self._children = metric, children


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
        self._lowest = buckets[0] if buckets else 0.0
        metric = HistogramChild(name, documentation, labels, registry=None, buckets=buckets)
        super().__init__(metric, name, labels, registry)

    @property
    def has_sum(self) -> bool:
        """Whether the histogram has a `_sum`.

        OpenMetrics forbids it if a bucket lies below 0, because a sum that decreases looks like a
        restart. prometheus_client then omits it, but not the `_count`.
        """
        return self._lowest >= 0
