"""What a dashboard consists of, and its JSON, made with Grafana's own SDK."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from grafana_foundation_sdk.builders import common, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.builders import dashboard as grafana
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueTextMode,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from deploy.observe.promql import Metric

#: How a panel is drawn: lines, areas on top of one another, one large number, a histogram's
#: buckets over time.
Drawing = Literal["lines", "areas", "number", "buckets"]

TAG: Final = "gymmesh"
#: Grafana makes a name of the labels; where there are none it has nothing to make it of.
UNNAMED: Final = "__auto"
_WIDTH: Final = 24  # of Grafana's grid
_HEIGHTS: Final = {"lines": 8, "areas": 8, "buckets": 8, "number": 4}
_Builder = timeseries.Panel | stat.Panel | heatmap.Panel
_B = TypeVar("_B", bound=_Builder)
_SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")


@dataclass(frozen=True, slots=True)
class Query:
    """A query in PromQL, and what its series are called: `{{label}}` is a label's value.

    Only a number, which has no legend, may do without.
    """

    expr: str
    legend: str = UNNAMED


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture. `unit` is Grafana's name of it; `width` is of 24.

    `least` and `most` are the ends of its scale; None: what the values need. A number is yellow
    from `warns` on and red from `alarms`; without them it has no colour.
    """

    title: str
    queries: Sequence[Query]
    note: str
    unit: str = "short"
    draw: Drawing = "lines"
    width: int = 8
    exemplars: bool = False
    least: float | None = 0
    most: float | None = None
    warns: float | None = None
    alarms: float | None = None

    @property
    def height(self) -> int:
        """In lines of Grafana's grid."""
        return _HEIGHTS[self.draw]


@dataclass(frozen=True, slots=True)
class Row:
    """A heading with panels below."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the top of a dashboard: the values that a metric's label has."""

    label: str
    metric: Metric


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A dashboard. `name` is its file's and its address'."""

    name: str
    title: str
    note: str
    variables: Sequence[Variable]
    rows: Sequence[Row]

    @property
    def panels(self) -> list[Panel]:
        """Those of all rows."""
        return [panel for row in self.rows for panel in row.panels]


def to_json(dashboard: Dashboard) -> str:
    """As Grafana takes it.

    Raises ValueError where a row's panels do not fill the width, and for a series without a name.
    """
    built = (
        grafana.Dashboard(f"gymmesh / {dashboard.title}")
        .uid(f"gymmesh-{dashboard.name}")
        .description(dashboard.note)
        .tags([TAG])
        .timezone("browser")
        .time("now-1h", "now")
        .refresh("10s")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(grafana.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .link(
            grafana.DashboardLink("gymmesh")
            .type(DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
    )  # fmt: skip
    for variable in dashboard.variables:
        built.with_variable(_variable(variable))
    built.with_variable(grafana.AdHocVariable("filters").label("also").datasource(_SOURCE))
    panel_id = 1
    for row in dashboard.rows:
        if sum(panel.width for panel in row.panels) % _WIDTH:
            raise ValueError(f"{dashboard.name}: the panels of '{row.title}' do not fill the width")
        built.with_row(grafana.Row(row.title).id(panel_id))
        for panel in row.panels:
            panel_id += 1
            built.with_panel(_PANELS[panel.draw](panel).id(panel_id))
        panel_id += 1
    return json.dumps(built.build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def _variable(variable: Variable) -> grafana.QueryVariable:
    return (
        grafana.QueryVariable(variable.label)
        .label(variable.label)
        .datasource(_SOURCE)
        .query(f"label_values({_series(variable.metric)}, {variable.label})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(VariableOption(selected=True, text="All", value="$__all"))
    )


def _series(metric: Metric) -> str:
    """A name that Prometheus has series of; a histogram's own has none."""
    about = next(iter(metric.describe()))
    return f"{metric.name}_count" if about.type == "histogram" else metric.name


def _placed(built: _B, panel: Panel) -> _B:
    """What every kind of panel has."""
    built.title(panel.title).description(panel.note).datasource(_SOURCE).unit(panel.unit)
    built.span(panel.width).height(panel.height)
    return built


def _lines(panel: Panel) -> timeseries.Panel:
    built = (
        _placed(timeseries.Panel(), panel)
        .line_width(1)
        .fill_opacity(30 if panel.draw == "areas" else 5)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    )
    if panel.draw == "areas":
        built.stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    if panel.least is not None:
        built.min(panel.least)
    if panel.most is not None:
        built.max(panel.most)
    if any(query.legend == UNNAMED for query in panel.queries):
        raise ValueError(f"a series of '{panel.title}' has no name")
    for query in _queries(panel):
        built.with_target(query)
    return built


def _number(panel: Panel) -> stat.Panel:
    calculated = common.ReduceDataOptions().calcs(["lastNotNull"])
    built = _placed(stat.Panel(), panel).reduce_options(calculated)
    if len(panel.queries) > 1:
        built.text_mode(BigValueTextMode.VALUE_AND_NAME)
    steps = [Threshold(color="text" if panel.alarms is None else "green")]
    if panel.warns is not None:
        steps.append(Threshold(value=panel.warns, color="yellow"))
    if panel.alarms is not None:
        steps.append(Threshold(value=panel.alarms, color="red"))
    built.thresholds(grafana.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    built.color_mode(BigValueColorMode.VALUE)
    for query in _queries(panel):
        built.with_target(query)
    return built


def _buckets(panel: Panel) -> heatmap.Panel:
    blues = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Blues")
    built = _placed(heatmap.Panel(), panel).color(blues)
    for query in _queries(panel):
        built.with_target(query.format(PromQueryFormat.HEATMAP))
    return built


_PANELS: Final[dict[Drawing, Callable[[Panel], _Builder]]] = {
    "lines": _lines,
    "areas": _lines,
    "number": _number,
    "buckets": _buckets,
}


def _queries(panel: Panel) -> list[prometheus.Dataquery]:
    return [
        prometheus.Dataquery()
        .ref_id(chr(ord("A") + place))
        .expr(query.expr)
        .legend_format(query.legend)
        .datasource(_SOURCE)
        .exemplar(panel.exemplars)
        .range()
        for place, query in enumerate(panel.queries)
    ]
