"""What a picture says in words, and that nothing in it hides anything else."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from deploy.observe.dashboard import Dashboard, Panel, Query, Row, to_json
from deploy.observe.picture import View, draw, figure_of, written
from deploy.observe.prometheus_api import Series, Server, filled_in

_METHODS = [f"gymmesh.discovery.v1.DiscoveryService/Method{n:02} CANCELLED" for n in range(26)]


class Answering(Server):
    """Answers a query, which is the number of series wanted, with so many."""

    def over(self, expr: str, start: float, end: float, step: float) -> list[Series]:
        names = _METHODS[: int(expr)]
        return [
            Series({"method": name}, [(start, 1.0), (start + 1, 2.0), (end, float(place))])
            for place, name in enumerate(names)
        ]


def _dashboard() -> dict[str, object]:
    counts = [1, 26, 4]
    panels = [
        Panel(f"{draw} {count}", [Query(str(count), "{{method}}")], "A note.", draw=draw)
        for draw in ("areas", "lines")
        for count in counts
    ]
    made = Dashboard("test", "Test", "A note.", [], [Row("All", panels)])
    loaded: dict[str, object] = json.loads(to_json(made))
    return loaded


def _view() -> View:
    return View(Answering(""), 0.0, 60.0, "10s")


def _boxes(figure: Figure) -> list[Bbox]:
    """What the panels cover, and what their legends do."""
    canvas: Any = FigureCanvasAgg(figure)  # its get_renderer has no types
    renderer = canvas.get_renderer()
    found = []
    for axes in figure.axes:
        legend = axes.get_legend()
        assert legend is not None
        found.append(legend.get_window_extent(renderer))
        legend.remove()
        tight = axes.get_tightbbox(renderer)
        assert tight is not None
        found.append(tight)
    return found


def test_nothing_covers_anything_else() -> None:
    figure = figure_of(_dashboard(), _view())
    boxes = _boxes(figure)
    assert len(boxes) == 12
    for one, other in itertools.combinations(boxes, 2):
        assert Bbox.intersection(one, other) is None, (one, other)
    for box in boxes:
        assert figure.bbox.count_contains(box.corners()) == 4, box


def test_every_series_is_named(tmp_path: Path) -> None:
    draw(_dashboard(), _view(), tmp_path / "test.svg")
    root = ElementTree.parse(tmp_path / "test.svg").getroot()
    texts = ["".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert [texts.count(name) for name in _METHODS] == [6] + [4] * 3 + [2] * 22


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, "s", "0"),
        (0.00025, "s", "250 µs"),
        (0.02, "s", "20 ms"),
        (45.0, "s", "45 s"),
        (75.0, "s", "1.25 min"),
        (9000.0, "s", "2.5 h"),
        (0.375, "percentunit", "37.5 %"),
        (3 * 2**20, "bytes", "3 MiB"),
        (1234.0, "ops", "1.23 k/s"),
        (0.5, "ops", "0.5 /s"),
        (12.0, "short", "12"),
        (-2500.0, "short", "-2.5 k"),
    ],
)
def test_numbers(value: float, unit: str, text: str) -> None:
    assert written(value, unit) == text


def test_series_are_called_as_the_legend_says() -> None:
    one = Series({"model": "policy", "direction": "input"}, [])
    assert one.named("{{model}} {{ direction }} p95") == "policy input p95"
    assert one.named("{{tool}} calls") == "calls"
    assert one.named("__auto") == "policy, input"
    assert one.is_named("{{model}} {{tool}}")
    assert not one.is_named("{{tool}} calls")
    assert one.is_named("calls")
    assert not Series({}, []).is_named("__auto")


@pytest.mark.parametrize("how", ["lines", "areas"])
def test_a_series_that_is_drawn_has_a_name(how: Literal["lines", "areas"]) -> None:
    panel = Panel("Expired", [Query("sum(a)", "expired"), Query("sum(b)")], "A note.", draw=how)
    with pytest.raises(ValueError, match="a series of 'Expired' has no name"):
        to_json(Dashboard("test", "Test", "A note.", [], [Row("All", [panel, panel, panel])]))


def test_what_grafana_would_put_in() -> None:
    asked = 'rate(x{agent=~"$agent",job=~"$job"}[$__rate_interval])'
    assert filled_in(asked, "5m", {"job": "mesh"}) == 'rate(x{agent=~".*",job=~"mesh"}[5m])'


def test_there_is_no_line_where_there_was_no_sample() -> None:
    line = figure_of(_dashboard(), _view()).axes[3].lines[0]
    # Samples at 0, 1 and 60 seconds, one a second expected: the last is a dot.
    values = np.asarray(line.get_ydata())
    assert np.isnan(values).tolist() == [False, False, True, False]
    assert line.get_markevery() == [3]
