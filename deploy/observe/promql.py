"""PromQL over the project's metrics.

A query names a metric by its object in families.py, and labels are checked against it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gymmesh_runtime.telemetry.instruments import Family, Histogram

Metric = Family[Any]

#: Grafana's: four scrapes at least, and not less than a step of the picture.
AUTO: Final = "$__rate_interval"
# The labels in matchers, such as `outcome="failed",boundary!="BUDGET"`.
_NAMED: Final = re.compile(r"(\w+)(?:=~|!~|!=|=)")
# Beside a metric's own: buckets' bounds, and what Prometheus gives every target.
_GIVEN: Final = frozenset(("le", "instance", "job", "kind", "service_name"))


@dataclass(frozen=True, slots=True)
class Scope:
    """Over what window rates are, and which series are meant.

    Attributes:
        window: a duration, as `5m`.
        matchers: what labels must match, by label, as `=~"$agent"`; it holds for those metrics
            that have the label, or get it from Prometheus.
    """

    window: str = AUTO
    matchers: Mapping[str, str] = field(default_factory=dict)

    def select(self, metric: Metric, suffix: str = "", where: str = "") -> str:
        """The series of a metric; `where` adds matchers, as `outcome="failed"`."""
        _check(metric, _NAMED.findall(where))
        known = _GIVEN.union(metric.label_names)
        own = [f"{label}{match}" for label, match in self.matchers.items() if label in known]
        inside = ",".join([*own, *([where] if where else [])])
        return f"{metric.name}{suffix}" + (f"{{{inside}}}" if inside else "")

    def rate(self, metric: Metric, *by: str, where: str = "", suffix: str = "") -> str:
        """How much a counter, or a part of a histogram, grows in a second."""
        selected = f"{self.select(metric, suffix, where)}[{self.window}]"
        return _aggregate("sum", metric, by, f"rate({selected})")

    def count(self, metric: Histogram, *by: str, where: str = "") -> str:
        """How many observations there are in a second.

        Raises ValueError, as `total` and `mean` do, for a histogram with buckets below 0.
        """
        _check_sum(metric)
        return self.rate(metric, *by, where=where, suffix="_count")

    def total(self, metric: Histogram, *by: str, where: str = "") -> str:
        """How much is observed in a second: of seconds, how many go by at a time."""
        _check_sum(metric)
        return self.rate(metric, *by, where=where, suffix="_sum")

    def increase(self, metric: Metric, *by: str, where: str = "") -> str:
        """How much a counter grew in the window.

        A series whose first sample is not 0 has grown from nothing, which Prometheus' `increase`
        alone does not count.
        """
        selected = self.select(metric, "", where)
        fresh = f"({selected} unless {selected} offset {self.window})"
        grown = f"increase({selected}[{self.window}])"
        return _aggregate("sum", metric, by, f"({fresh} or {grown})")

    def gauge(self, metric: Metric, *by: str, how: str = "sum", where: str = "") -> str:
        """A gauge over all processes."""
        return _aggregate(how, metric, by, self.select(metric, "", where))

    def mean(self, metric: Histogram, *by: str, where: str = "") -> str:
        """The mean of what a histogram observed."""
        return f"{self.total(metric, *by, where=where)} / {self.count(metric, *by, where=where)}"

    def quantile(self, share: float, metric: Histogram, *by: str, where: str = "") -> str:
        """What `share` of the observations do not exceed, by the histogram's buckets."""
        buckets = self.rate(metric, "le", *by, where=where, suffix="_bucket")
        return f"histogram_quantile({share:g}, {buckets})"

    def share(self, metric: Metric, *by: str, of: str, among: str = "") -> str:
        """The part of a counter's growth that matches `of`, of that which matches `among`.

        Where something grows and nothing of it matches, that is 0.
        """
        whole = self.rate(metric, *by, where=among)
        return f"({self.rate(metric, *by, where=of)} or 0 * {whole}) / ({whole} > 0)"


def _aggregate(how: str, metric: Metric, by: Sequence[str], inner: str) -> str:
    _check(metric, by)
    return f"{how} by ({', '.join(by)}) ({inner})" if by else f"{how}({inner})"


def _check(metric: Metric, labels: Iterable[str]) -> None:
    """Raises ValueError for a label that the metric lacks."""
    unknown = sorted(set(labels) - _GIVEN - set(metric.label_names))
    if unknown:
        raise ValueError(f"{metric.name} has no label {', '.join(unknown)}")


def _check_sum(metric: Histogram) -> None:
    """Raises ValueError for a histogram without a sum; OpenMetrics then promises no count."""
    if not metric.has_sum:
        raise ValueError(f"{metric.name} has buckets below 0, and so no _sum")
