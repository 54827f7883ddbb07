"""Draws a dashboard without Grafana, for the documentation.

It reads the same JSON as Grafana, asks a Prometheus each panel's queries, and draws the answers in
the panels' places: what is shown is real, how it looks is not Grafana's. Each panel's legend stands
below it and names every series, so panels of one height in Grafana are moved apart as far as the
longest legend between them needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, Locator, MaxNLocator, MultipleLocator

from deploy.observe.compact_svg import compact
from deploy.observe.prometheus_api import Series, Server, filled_in

_COLUMN_IN: Final = 0.62  # a column of Grafana's grid
_LINE_IN: Final = 0.27
_LEGEND_LINE_IN: Final = 0.125
_POINT_IN: Final = 1 / 72
_ABOVE_IN: Final = 0.4  # of a panel: its title
_BELOW_IN: Final = 0.4  # the scale of time
_LEGEND_BELOW_IN: Final = 0.23  # from the axis to the legend
_LEFT_IN: Final = 0.52  # numbers
_RIGHT_IN: Final = 0.12
_LETTER_IN: Final = 4.0 * _POINT_IN  # of a legend, on average and with some room
_HANDLE_IN: Final = 24 * _POINT_IN
_POINTS: Final = 60
# Ten strong colours, and then their pale ones: the series of one panel are seldom more.
_COLOURS: Final = [mpl.colormaps["tab20"](place) for place in (*range(0, 20, 2), *range(1, 20, 2))]
_STEPS: Final = (1, 2, 2.5, 5, 10)
_MINUTES: Final = (15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21600.0, 86400.0)
_FONT: Final = "DejaVu Sans"
_STYLE: Final[Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "gymmesh",
    "font.family": _FONT,
    "font.size": 7.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#999999",
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "lines.linewidth": 1.0,
    "grid.color": "#e4e4e4",
    "xtick.bottom": False,
    "ytick.left": False,
    "legend.fontsize": 6.5,
    "axes.axisbelow": True,
}
_SCALES: Final = {
    "s": ((3600.0, " h"), (60.0, " min"), (1.0, " s"), (1e-3, " ms"), (1e-6, " µs")),
    "bytes": ((2.0**30, " GiB"), (2.0**20, " MiB"), (2.0**10, " KiB"), (1.0, " B")),
    "Bps": ((2.0**30, " GiB/s"), (2.0**20, " MiB/s"), (2.0**10, " KiB/s"), (1.0, " B/s")),
    "short": ((1e6, " M"), (1e3, " k"), (1.0, "")),
    "ops": ((1e6, " M/s"), (1e3, " k/s"), (1.0, " /s")),
}


@dataclass(frozen=True, slots=True)
class View:
    """Whose answers are drawn, for which time (Unix seconds), and the window of rates."""

    server: Server
    start: float
    end: float
    window: str

    @property
    def step(self) -> float:
        """Seconds between two points."""
        return max(1.0, (self.end - self.start) / _POINTS)

    def ask(self, target: dict[str, Any]) -> list[Series]:
        """The series of a panel's query."""
        asked = filled_in(target["expr"], self.window, {})
        return self.server.over(asked, self.start, self.end, self.step)


@dataclass(frozen=True, slots=True)
class _Answered:
    """A panel and what its queries gave: names as the legend has them, in their order."""

    panel: dict[str, Any]
    named: list[tuple[str, Series]]

    @property
    def has_legend(self) -> bool:
        """Whether its series are named below it."""
        return self.panel["type"] == "timeseries" and any(name for name, _ in self.named)

    @property
    def columns(self) -> int:
        """Of its legend."""
        width = self.panel["gridPos"]["w"] * _COLUMN_IN - _LEFT_IN
        longest = max(len(name) for name, _ in self.named)
        return max(1, int(width / (_HANDLE_IN + longest * _LETTER_IN)))

    @property
    def legend_in(self) -> float:
        """The height of its legend, in inches."""
        if not self.has_legend:
            return 0.0
        return math.ceil(len(self.named) / self.columns) * _LEGEND_LINE_IN


def draw(dashboard: dict[str, Any], view: View, path: Path) -> None:
    """Writes a picture of a dashboard, as SVG."""
    with mpl.rc_context(_STYLE):
        picture = StringIO()
        figure_of(dashboard, view).savefig(
            picture, format="svg", metadata={"Date": None, "Title": dashboard["title"]}
        )
    # Text stays text, in the reader's own font.
    text = picture.getvalue().replace(f"'{_FONT}'", "sans-serif")
    path.write_text(compact(text), encoding="utf-8")


def figure_of(dashboard: dict[str, Any], view: View) -> Figure:
    """The picture, not yet written."""
    answered = [_answered(panel, view) for panel in dashboard["panels"]]
    legends: dict[int, float] = {}  # by the panels' line of Grafana's grid
    for one in answered:
        line = one.panel["gridPos"]["y"]
        legends[line] = max(legends.get(line, 0.0), one.legend_in)
    lines = max(one.panel["gridPos"]["y"] + one.panel["gridPos"]["h"] for one in answered)
    with mpl.rc_context(_STYLE):
        height = lines * _LINE_IN + sum(legends.values())
        figure = Figure(figsize=(24 * _COLUMN_IN, height))
        for one in answered:
            line = one.panel["gridPos"]["y"]
            top = line * _LINE_IN + sum(more for above, more in legends.items() if above < line)
            _draw_panel(figure, one, top, view)
    return figure


def _answered(panel: dict[str, Any], view: View) -> _Answered:
    found = [
        (one.named(target.get("legendFormat", "")), one)
        for target in panel.get("targets", [])
        for one in view.ask(target)
        if one.samples
    ]
    return _Answered(panel, sorted(found, key=lambda pair: pair[0].casefold()))


def _draw_panel(figure: Figure, answered: _Answered, top: float, view: View) -> None:
    """`top`: from the picture's upper edge, in inches."""
    panel, place = answered.panel, answered.panel["gridPos"]
    across, down = figure.get_size_inches()
    if panel["type"] == "row":
        y = 1 - (top + 0.7 * _LINE_IN) / down
        figure.text(0.005, y, panel["title"], weight="bold", size=10, va="center")
        return
    width = place["w"] * _COLUMN_IN - _LEFT_IN - _RIGHT_IN
    height = place["h"] * _LINE_IN - _ABOVE_IN - _BELOW_IN
    left = place["x"] * _COLUMN_IN + _LEFT_IN
    bottom = down - top - _ABOVE_IN - height
    axes = figure.add_axes((left / across, bottom / down, width / across, height / down))
    axes.set_title(panel["title"])
    if panel["type"] == "stat":
        _number(axes, answered)
    elif panel["type"] == "heatmap":
        _buckets(axes, answered, view)
    else:
        _lines(axes, answered, view)
        if answered.has_legend:
            _legend(axes, answered, below=_LEGEND_BELOW_IN / height)


def _number(axes: Axes, answered: _Answered) -> None:
    unit = _unit(answered.panel)
    said = [written(one.samples[-1][1], unit) for _, one in answered.named]
    axes.set_axis_off()
    axes.text(0.0, 0.35, " · ".join(said) or "no data", size=17, va="center", color="#1f60c4")


def _lines(axes: Axes, answered: _Answered, view: View) -> None:
    series = [one for _, one in answered.named]
    axes.set_prop_cycle(color=_COLOURS)
    if not series:
        _nothing(axes)
    elif _is_stacked(answered.panel):
        moments = sorted({at for one in series for at, _ in one.samples})
        values = [[dict(one.samples).get(at, 0.0) for at in moments] for one in series]
        axes.stackplot([at - view.start for at in moments], values, alpha=0.75, linewidth=0)
    else:
        for place, one in enumerate(series):
            style = "-" if place < len(_COLOURS) else "--"
            _line(axes, one, view, style)
    _scale(axes, answered)
    _time(axes, view)
    axes.grid(axis="y")


def _line(axes: Axes, one: Series, view: View, style: str) -> None:
    """Where there was no sample there is no line, and a sample on its own is a dot."""
    seconds, values, alone = [], [], []
    times = [at for at, _ in one.samples]
    gap = 1.5 * view.step
    for place, (at, value) in enumerate(one.samples):
        after_gap = place == 0 or at - times[place - 1] > gap
        before_gap = place + 1 == len(times) or times[place + 1] - at > gap
        if after_gap and place:
            seconds.append(at - view.start)
            values.append(math.nan)
        if after_gap and before_gap:
            alone.append(len(values))
        seconds.append(at - view.start)
        values.append(value)
    # Above the axes' edges, which would hide a line along them.
    axes.plot(
        seconds, values, style, marker=".", markersize=3, markevery=alone, clip_on=False, zorder=3
    )


def _scale(axes: Axes, answered: _Answered) -> None:
    """From the panel's least to its most, and with numbers that are round in its unit."""
    unit, scale = _unit(answered.panel), answered.panel["fieldConfig"]["defaults"]
    least, most = scale.get("min"), scale.get("max")
    if most is None and all(value == 0 for _, one in answered.named for _, value in one.samples):
        most = 1.0
    axes.set_ylim(bottom=least, top=most)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: written(value, unit)))
    axes.yaxis.set_major_locator(_round_numbers(axes.get_ylim()[1], unit))


def _round_numbers(most: float, unit: str) -> Locator:
    """Where the scale has its numbers, of which `most` is the largest."""
    if unit == "bytes" and most > 0:
        return MultipleLocator(2.0 ** math.ceil(math.log2(most / 4)))
    if unit == "s" and most > 60:
        for step in _MINUTES:
            if most <= 5 * step:
                return MultipleLocator(step)
    return MaxNLocator(4, steps=_STEPS)


def _nothing(axes: Axes) -> None:
    axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color="#999999")


def _legend(axes: Axes, answered: _Answered, *, below: float) -> None:
    """Names every series. `below`: how far under the axes, in their height."""
    handles: Sequence[Any] = axes.collections if _is_stacked(answered.panel) else axes.lines
    axes.legend(
        handles,
        [name for name, _ in answered.named],
        loc="upper left",
        bbox_to_anchor=(0.0, -below),
        ncols=answered.columns,
        borderaxespad=0,
        borderpad=0,
        labelspacing=0.15,
        handlelength=1.2,
        columnspacing=1.0,
        frameon=False,
    )


def _buckets(axes: Axes, answered: _Answered, view: View) -> None:
    """A histogram's buckets, which are cumulative, each less the one below."""
    found = [(float(one.labels["le"]), dict(one.samples)) for _, one in answered.named]
    cumulative = sorted(found, key=lambda bucket: bucket[0])
    moments = sorted({at for _, samples in cumulative for at in samples})
    rows, below = [], dict.fromkeys(moments, 0.0)
    for _, samples in cumulative:
        row = {at: samples.get(at, 0.0) for at in moments}
        rows.append([max(0.0, row[at] - below[at]) for at in moments])
        below = row
    if moments:
        seconds = [at - view.start for at in moments]
        axes.pcolormesh(
            seconds, range(len(rows)), rows, cmap="Blues", shading="nearest", rasterized=True
        )
    else:
        _nothing(axes)
    axes.set_yticks(range(len(cumulative)), [f"{bound:g}" for bound, _ in cumulative], size=5)
    _time(axes, view)


def _time(axes: Axes, view: View) -> None:
    axes.set_xlim(0, view.end - view.start)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} s"))
    axes.xaxis.set_major_locator(MaxNLocator(5))


def _is_stacked(panel: dict[str, Any]) -> bool:
    custom = panel["fieldConfig"]["defaults"].get("custom", {})
    return bool(custom.get("stacking", {}).get("mode") == "normal")


def _unit(panel: dict[str, Any]) -> str:
    return str(panel["fieldConfig"]["defaults"].get("unit", "short"))


def written(value: float, unit: str) -> str:
    """A number as people read it, in one of the units that our panels have."""
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if not value:
        return "0"
    size, name = next((one for one in _SCALES[unit] if abs(value) >= one[0]), _SCALES[unit][-1])
    return f"{value / size:.3g}{name}"
