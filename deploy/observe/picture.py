"""Draws a dashboard without Grafana, for the documentation.

It reads the same JSON as Grafana, asks a Prometheus each panel's queries, and draws the answers in
the panels' places: what is shown is real, how it looks is not Grafana's.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from deploy.observe.asking import Series, Server, filled_in
from deploy.observe.compact import compact

_COLUMN_IN: Final = 0.62  # a column of Grafana's grid
_LINE_IN: Final = 0.27
_POINTS: Final = 60
_MOST_LEGENDS: Final = 8
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
    "legend.edgecolor": "none",
    "legend.framealpha": 0.75,
    "legend.fontsize": 6.5,
}
_SCALES: Final = {
    "s": ((1.0, " s"), (1e-3, " ms"), (1e-6, " µs")),
    "bytes": ((2.0**30, " GiB"), (2.0**20, " MiB"), (2.0**10, " KiB"), (1.0, " B")),
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

    def ask(self, target: dict[str, Any]) -> list[Series]:
        """The series of a panel's query."""
        step = max(1.0, (self.end - self.start) / _POINTS)
        return self.server.over(
            filled_in(target["expr"], self.window, {}), self.start, self.end, step
        )


def draw(dashboard: dict[str, Any], view: View, path: Path) -> None:
    """Writes a picture of a dashboard, as SVG."""
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    lines = max(place["y"] + place["h"] for place in places)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(24 * _COLUMN_IN, lines * _LINE_IN))
        for panel in dashboard["panels"]:
            _draw_panel(figure, panel, lines, view)
        picture = StringIO()
        figure.savefig(picture, format="svg", metadata={"Date": None, "Title": dashboard["title"]})
    # Text stays text, in the reader's own font.
    text = picture.getvalue().replace(f"'{_FONT}'", "sans-serif")
    path.write_text(compact(text), encoding="utf-8")


def _draw_panel(figure: Figure, panel: dict[str, Any], lines: int, view: View) -> None:
    place = panel["gridPos"]
    left, top = place["x"] / 24, 1 - place["y"] / lines
    if panel["type"] == "row":
        figure.text(0.005, top - 0.7 / lines, panel["title"], weight="bold", size=10, va="center")
        return
    width, height = place["w"] / 24, place["h"] / lines
    # Room for the title above, and for numbers at the left and below.
    box = (left + 0.03, top - height + 1.6 / lines, width - 0.045, height - 3.2 / lines)
    axes = figure.add_axes(box)
    axes.set_title(panel["title"])
    found = [(one, target) for target in panel["targets"] for one in view.ask(target)]
    if panel["type"] == "stat":
        _number(axes, panel, found)
    elif panel["type"] == "heatmap":
        _buckets(axes, found, view)
    else:
        _lines(axes, panel, found, view)


def _number(axes: Axes, panel: dict[str, Any], found: list[tuple[Series, dict[str, Any]]]) -> None:
    said = [written(one.samples[-1][1], _unit(panel)) for one, _ in found if one.samples]
    axes.set_axis_off()
    axes.text(0.0, 0.35, " · ".join(said) or "no data", size=17, va="center", color="#1f60c4")


def _lines(
    axes: Axes, panel: dict[str, Any], found: list[tuple[Series, dict[str, Any]]], view: View
) -> None:
    named = [(one.named(target.get("legendFormat", "")), one) for one, target in found]
    named = sorted(((name, one) for name, one in named if one.samples), key=lambda pair: pair[0])
    if _is_stacked(panel):
        moments = sorted({at for _, one in named for at, _ in one.samples})
        values = [[dict(one.samples).get(at, 0.0) for at in moments] for _, one in named]
        if moments:
            axes.stackplot([at - view.start for at in moments], values, alpha=0.75, linewidth=0)
            _legend(axes, [name for name, _ in named], stacked=True)
    else:
        for _, one in named:
            axes.plot([at - view.start for at, _ in one.samples], [v for _, v in one.samples])
        _legend(axes, [name for name, _ in named], stacked=False)
    scale = panel["fieldConfig"]["defaults"]
    axes.set_ylim(bottom=scale.get("min"), top=scale.get("max"))
    unit = _unit(panel)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: written(value, unit)))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    _time(axes, view)
    axes.grid(axis="y")
    if not named:
        _nothing(axes)


def _nothing(axes: Axes) -> None:
    axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color="#999999")


def _legend(axes: Axes, names: list[str], *, stacked: bool) -> None:
    handles: list[Any] = list(axes.collections if stacked else axes.lines)
    shown = [(handle, name) for handle, name in zip(handles, names, strict=True) if name]
    if shown:
        kept = shown[:_MOST_LEGENDS]
        axes.legend(
            [handle for handle, _ in kept],
            [name for _, name in kept],
            loc="upper left",
            ncols=1 + (len(kept) > 4),
            borderpad=0.1,
            labelspacing=0.15,
            handlelength=1.2,
        )


def _buckets(axes: Axes, found: list[tuple[Series, dict[str, Any]]], view: View) -> None:
    """A histogram's buckets, which are cumulative, each less the one below."""
    cumulative = sorted((float(one.labels["le"]), dict(one.samples)) for one, _ in found)
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
