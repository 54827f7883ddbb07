"""Pieces of a page: a document that loads and runs nothing, tables, cards, and pictures as SVG.

A page has no script, and a policy that forbids them. All text is escaped here. Colours follow the
reader's light or dark setting.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

from gymmesh_runtime.extras import Extra
from gymmesh_runtime.text import one_line

IS_FACE = True  # see tools/import_faces.py

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gymmesh_data.profile.bounds import RewardBounds
    from gymmesh_data.profile.curve import Curve
    from gymmesh_data.profile.report import Figure

CHARTS: Final = Extra("profile", ("matplotlib", "numpy"))
# Stand for the page's own colours in a picture.
INK, MAIN, OTHER = "#0a0b0c", "#1a2b3c", "#4d5e6f"
_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1c2330;--page:#fff;--soft:#667085;--line:#dfe3ea;
--main:#2563a8;--other:#c2601c;--warn:#fff3d6}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ef;--page:#14171d;--soft:#98a2b3;--line:#323843;
--main:#6aaaf0;--other:#f0985a;--warn:#3b3016}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:68rem;
margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem;border-bottom:1px solid var(--line)}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;width:100%}
th,td{text-align:right;padding:.2rem .6rem;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left;overflow-wrap:anywhere}th{color:var(--soft)}
.pictures{display:grid;grid-template-columns:repeat(auto-fit,minmax(22rem,1fr));gap:1rem}
figure{margin:0}figcaption{color:var(--soft)}svg{width:100%;height:auto}
.cards{display:flex;flex-wrap:wrap;gap:1rem}.cards div{border:1px solid var(--line);
border-radius:.5rem;padding:.6rem 1rem}.cards b{display:block;font-size:1.1rem}
.warn{background:var(--warn);border-radius:.4rem;padding:.4rem .8rem;margin:.4rem 0}
"""
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def document(title: str, parts: Iterable[str]) -> str:
    """A whole page of parts that are HTML already; the title is text."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{text(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><main><h1>{text(title)}</h1>{''.join(parts)}</main></body></html>\n"
    )


def text(value: object) -> str:
    """A text as HTML shows it, in one line."""
    return escape(one_line(str(value)))


def figure_text(figure: Figure | None) -> str:
    """A mean with its error and interval."""
    if figure is None:
        return "–"
    error = "" if figure.standard_error is None else f" ± {figure.standard_error:.3f}"
    interval = figure.interval
    told = "" if interval is None else f" [{interval[0]:.3f}, {interval[1]:.3f}]"
    return f"{figure.value:.3f}{error}{told}"


def bounds_text(bounds: RewardBounds | None) -> str:
    """The lowest and highest mean that missing rewards allow."""
    if bounds is None:
        return "–"
    rollouts = f"{bounds.missing} rollout{'s' * (bounds.missing != 1)}"
    return (
        f"[{bounds.low:.3f}, {bounds.high:.3f}] if {rollouts} without a reward had any reward of "
        "--reward-range"
    )


def curve_rows(curve: Curve) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """A curve as a table: its heads and a row for each run."""
    heads: tuple[str, ...] = ("run", "mean reward", "pass@1", "bounds", "without a reward")
    rows: list[tuple[str, ...]] = [
        (
            one.run,
            figure_text(one.mean),
            figure_text(one.pass_at_1),
            "–" if one.bounds is None else f"[{one.bounds.low:.3f}, {one.bounds.high:.3f}]",
            str(one.missing),
        )
        for one in curve.points
    ]
    return heads, rows


def cards(found: Iterable[tuple[str, str]]) -> str:
    """Figures with their names, side by side."""
    told = "".join(f"<div>{text(name)}<b>{text(value)}</b></div>" for name, value in found)
    return f'<div class="cards">{told}</div>'


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table under a heading; empty without rows."""
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{text(one)}</th>' for one in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<h2>{text(title)}</h2><table><tr>{head}</tr>{body}</table>"


def pictures(found: Iterable[tuple[str, Callable[[Axes], None]]]) -> str:
    """Pictures with their titles, each drawn by a function."""
    drawn = "".join(
        f"<figure>{_svg(draw, title)}<figcaption>{text(title)}</figcaption></figure>"
        for title, draw in found
    )
    return f'<div class="pictures">{drawn}</div>'


def _svg(draw: Callable[[Axes], None], title: str) -> str:
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": title,
        "font.family": "sans-serif",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        **dict.fromkeys(
            ("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color"), INK
        ),
    }
    with mpl.rc_context(style):
        canvas = Canvas(figsize=(5.2, 2.8), layout="constrained")
        draw(canvas.add_subplot())
        out = StringIO()
        canvas.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    svg = re.sub(r"<metadata>.*?</metadata>", "", out.getvalue(), flags=re.DOTALL)
    named = f'<svg role="img" aria-label="{escape(title)}"'
    svg = svg[svg.index("<svg") :].replace("<svg", named, 1)
    for colour, own in ((INK, "currentColor"), (MAIN, "var(--main)"), (OTHER, "var(--other)")):
        svg = svg.replace(colour, own)
    # Text has the colour of shapes, black, unless it is said.
    return svg.replace("<svg", '<svg fill="currentColor"', 1)
