"""What several dashboards are made of: queries whose series are called by their labels."""

from __future__ import annotations

from collections.abc import Sequence

from deploy.observe.dashboard import Panel, Query, Variable
from deploy.observe.promql import Metric, Scope
from gymmesh_runtime.telemetry.instruments import Histogram


def chosen(*variables: Variable) -> Scope:
    """The series of what is chosen at the top of a dashboard."""
    return Scope(matchers={one.label: f'=~"${one.label}"' for one in variables})


def number(title: str, expr: str, note: str, unit: str = "short") -> Panel:
    """One large number, of all that is chosen."""
    return Panel(title, [Query(expr)], note, unit, "number", width=4)


def rates(scope: Scope, metric: Metric, *by: str, where: str = "") -> list[Query]:
    """How much a counter grows in a second."""
    return [Query(scope.rate(metric, *by, where=where), _named(by))]


def gauges(scope: Scope, metric: Metric, *by: str, how: str = "sum") -> list[Query]:
    """A gauge over all processes."""
    return [Query(scope.gauge(metric, *by, how=how), _named(by))]


def p95(scope: Scope, metric: Histogram, *by: str) -> list[Query]:
    """What 95 % of the observations do not exceed."""
    return [Query(scope.quantile(0.95, metric, *by), _named(by))]


def percentiles(
    scope: Scope, metric: Histogram, *by: str, shares: Sequence[float] = (0.5, 0.95)
) -> list[Query]:
    """A query for each share of the observations."""
    return [
        Query(scope.quantile(one, metric, *by), f"{_named(by)} p{one * 100:g}".lstrip())
        for one in shares
    ]


def _named(by: Sequence[str]) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in by)
