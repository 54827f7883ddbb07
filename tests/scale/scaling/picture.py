"""docs/pictures/scaling.svg: what grows with the number of machines, by layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tests.scale.scaling.model import BUSY, Cluster, Layout, Model

_COLOURS: Final = {Layout.MESH: "#c0392b", Layout.CELLS: "#b9822d", Layout.ZONES: "#3f8f5b"}
_WIDTH: Final = 1040
_HEIGHT: Final = 360
_PANEL: Final = (410, 230)  # of a plot, without its labels
_TOP: Final = 56
_LEFTS: Final = (84, 600)
_LEAST, _MOST = 10, 10_000  # machines
_STEPS: Final = 60


def draw(model: Model) -> str:
    """The picture."""
    about = "CPU of a rollout and of the registry, by machines, for each layout"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="13" role="img" aria-label="{about}">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        *_panel(
            _LEFTS[0],
            "CPU of a rollout of two turns, ms",
            (0.1, 1000.0),
            lambda one: one.rollout_ms,
            model,
            (),
        ),
        *_panel(
            _LEFTS[1],
            "processors that the registry would need, at rest",
            (0.0001, 1000.0),
            lambda one: one.registry_busy,
            model,
            ((BUSY, "all that one process should use"),),
        ),
        *_legend(),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _panel(
    left: float,
    title: str,
    scale: tuple[float, float],
    value: Callable[[Cluster], float],
    model: Model,
    lines: Sequence[tuple[float, str]],
) -> Iterator[str]:
    wide, high = _PANEL
    yield f'<text x="{left}" y="{_TOP - 18}" font-weight="600" fill="#1f2733">{title}</text>'
    yield (
        f'<rect x="{left}" y="{_TOP}" width="{wide}" height="{high}" fill="#f4f6f9" '
        'stroke="#9aa4b2"/>'
    )
    for power in range(round(math.log10(scale[0])), round(math.log10(scale[1])) + 1):
        y = _y(10.0**power, scale)
        yield f'<path d="M{left} {y:.1f}h{wide}" stroke="#d5dae1"/>'
        yield (
            f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#5b6472">'
            f"{10.0**power:g}</text>"
        )
    for power in range(round(math.log10(_LEAST)), round(math.log10(_MOST)) + 1):
        x = _x(10.0**power, left)
        yield f'<path d="M{x:.1f} {_TOP}v{high}" stroke="#d5dae1"/>'
        yield (
            f'<text x="{x:.1f}" y="{_TOP + high + 18}" text-anchor="middle" fill="#5b6472">'
            f"{10**power:,}</text>"
        )
    for at, what in lines:
        y = _y(at, scale)
        yield f'<path d="M{left} {y:.1f}h{wide}" stroke="#5b6472" stroke-dasharray="5 4"/>'
        yield f'<text x="{left + 8}" y="{y - 6:.1f}" fill="#5b6472">{what}</text>'
    for layout in Layout:
        points = [
            f"{_x(count, left):.1f} {_y(value(Cluster(model, layout, count)), scale):.1f}"
            for count in _machines()
        ]
        yield (
            f'<path d="M{" L".join(points)}" fill="none" stroke="{_COLOURS[layout]}" '
            'stroke-width="2.5"/>'
        )


def _legend() -> Iterator[str]:
    y = _HEIGHT - 18
    for at, layout in enumerate(Layout):
        x = _LEFTS[0] + 210 * at
        yield f'<path d="M{x} {y - 5}h28" stroke="{_COLOURS[layout]}" stroke-width="2.5"/>'
        yield f'<text x="{x + 36}" y="{y}" fill="#1f2733">{layout.value}</text>'
    right = _LEFTS[1] + _PANEL[0]
    yield f'<text x="{right}" y="{y}" text-anchor="end" fill="#5b6472">machines</text>'


def _machines() -> list[int]:
    span = math.log10(_MOST / _LEAST)
    return sorted({round(_LEAST * 10 ** (span * at / _STEPS)) for at in range(_STEPS + 1)})


def _x(count: float, left: float) -> float:
    return left + _PANEL[0] * math.log10(count / _LEAST) / math.log10(_MOST / _LEAST)


def _y(value: float, scale: tuple[float, float]) -> float:
    low, high = map(math.log10, scale)
    place = (math.log10(max(value, scale[0])) - low) / (high - low)
    return _TOP + _PANEL[1] * (1 - min(1.0, place))
