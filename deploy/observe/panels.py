"""What several dashboards are made of: queries whose series are called by their labels."""

from __future__ import annotations

from collections.abc import Sequence

from deploy.observe.dashboard import Panel, Query, Variable
from deploy.observe.promql import Metric, Scope
from gymmesh_runtime.telemetry.instruments import Histogram


def chosen(*variables: Variable) -> Scope:
    """The series of what is chosen at the top of a dashboard."""
    return Scope(matchers={one.label: f'=~"${one.label}"' for one in variables})


def number(
    title: str,
    expr: str,
    note: str,
    unit: str = "short",
    *,
    warns: float | None = None,
    alarms: float | None = None,
) -> Panel:
    """One large number, of all that is chosen."""
    return Panel(title, [Query(expr)], note, unit, "number", 4, warns=warns, alarms=alarms)


def rates(scope: Scope, metric: Metric, *by: str, where: str = "") -> list[Query]:
    """How much a counter grows in a second."""
    return [Query(scope.rate(metric, *by, where=where), _named(by))]


def gauges(scope: Scope, metric: Metric, *by: str, how: str = "sum") -> list[Query]:
    """A gauge over all processes."""
    return [Query(scope.gauge(metric, *by, how=how), _named(by))]


def p95(scope: Scope, metric: Histogram, *by: str) -> list[Query]:
    """What 95 % of the observations do not exceed."""
    return [Query(scope.quantile(0.95, metric, *by), _named(by))]


def p95_of(scope: Scope, metric: Histogram, where: str, *by: str) -> list[Query]:
    """As `p95`, of the series that `where` matches."""
    return [Query(scope.quantile(0.95, metric, *by, where=where), _named(by))]


def percentiles(
    scope: Scope, metric: Histogram, *by: str, shares: Sequence[float] = (0.5, 0.95)
) -> list[Query]:
    """A query for each share of the observations."""
    return [
        Query(scope.quantile(one, metric, *by), f"{_named(by)} p{one * 100:g}".lstrip())
        for one in shares
    ]


def waits(scope: Scope, metric: Histogram, waiting: Metric, *by: str) -> list[Query]:
    """The median and the 95th percentile of a wait; 0 while there is the gauge of those that wait
    and none has waited.
    """
    return [
        Query(
            f"({scope.quantile(share, metric, *by)} >= 0) or 0 * {scope.gauge(waiting, *by)}",
            f"{_named(by)} p{share * 100:g}".lstrip(),
        )
        for share in (0.5, 0.95)
    ]


def _named(by: Sequence[str]) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in by)
