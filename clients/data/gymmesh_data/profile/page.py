"""A profile as one HTML file: figures, tables, and pictures as SVG within it.

Nothing is loaded from elsewhere and nothing in it runs: it has no script, and a policy that forbids
them. All text of rows is escaped. Colours follow the reader's light or dark setting.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

from gymmesh_data.profile.distributions import Distribution
from gymmesh_runtime.extras import Extra
from gymmesh_runtime.text import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gymmesh_data.profile.report import Figure, Profile

CHARTS: Final = Extra("profile", ("matplotlib", "numpy"))
# Stand for the page's own colours in a picture.
_INK, _MAIN, _OTHER = "#0a0b0c", "#1a2b3c", "#4d5e6f"
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


def page_of(profile: Profile) -> str:
    """The page of a profile.

    Raises:
        ConfigError: matplotlib is missing; the text says what to install.
    """
    CHARTS.require("an HTML page")
    title = "Profile of " + ", ".join(profile.inputs)
    rollouts = profile.rollouts()
    parts = [
        f"<h1>{_text(title)}</h1>",
        f"<p>A task is solved at a reward of {profile.options.solved_at:g} or more. "
        f"± is the standard error, clustered by task; [ ] the "
        f"{profile.options.confidence:.0%} interval of a bootstrap over tasks.</p>",
        _cards(profile, rollouts),
        "".join(f'<p class="warn">{_text(one.text)}</p>' for one in profile.warnings),
        _pictures(profile),
        *_tables(profile),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _text(value: object) -> str:
    return escape(one_line(str(value)))


def figure_text(figure: Figure | None) -> str:
    """A mean with its error and interval."""
    if figure is None:
        return "–"
    error = "" if figure.error is None else f" ± {figure.error:.3f}"
    interval = figure.interval
    told = "" if interval is None else f" [{interval[0]:.3f}, {interval[1]:.3f}]"
    return f"{figure.value:.3f}{error}{told}"


def _cards(profile: Profile, rollouts: dict[str, int]) -> str:
    cards = [
        ("mean reward", figure_text(profile.mean)),
        *(
            (f"pass@{k}", figure_text(figure))
            for k, figure in profile.estimates.get("pass_at", {}).items()
        ),
        ("judged", str(rollouts["judged"])),
        ("failed", str(rollouts["failed"])),
        ("without a reward", str(rollouts["unjudged"])),
    ]
    told = "".join(f"<div>{_text(name)}<b>{_text(value)}</b></div>" for name, value in cards)
    return f'<div class="cards">{told}</div>'


def _tables(profile: Profile) -> Iterable[str]:
    totals = profile.totals
    yield _table(
        "Groups",
        ("group", "tasks", "judged", "failed", "mean reward", "pass@1"),
        [
            (f"{one.kind}: {one.name}", one.tasks, one.judged, one.failed, *_two(one))
            for one in profile.groups
        ],
    )
    yield _table(
        "Tools",
        ("tool", "calls", "not valid", "rollouts"),
        [(name, t.calls, t.invalid, t.rollouts) for name, t in sorted(totals.tools.items())],
    )
    yield _table(
        "Failures",
        ("boundary", "reason", "component", "rollouts"),
        [(*cause, count) for cause, count in totals.failures.most_common()],
    )
    for title, found in (
        ("Reward components", totals.components),
        ("Tokens", totals.tokens),
        ("Latency in seconds", totals.latency),
    ):
        yield _spread(title, found)


def _two(group: Any) -> tuple[str, str]:
    return figure_text(group.mean), figure_text(group.pass_rate)


def _spread(title: str, found: dict[str, Distribution]) -> str:
    heads = ("", "rollouts", "mean", "p5", "median", "p95", "max")
    rows = []
    for name, one in sorted(found.items()):
        values = (one.mean, one.quantile(0.05), one.quantile(0.5), one.quantile(0.95), one.greatest)
        rows.append((name, one.count, *(f"{value:.4g}" for value in values if value is not None)))
    return _table(title, heads, rows)


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{_text(one)}</th>" for one in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<h2>{_text(title)}</h2><table><tr>{head}</tr>{body}</table>"


def _pictures(profile: Profile) -> str:
    totals = profile.totals
    pictures = [
        ("Rewards", lambda axes: _histogram(axes, totals.reward)),
        ("Tasks by pass rate", lambda axes: _bands(axes, profile.bands)),
        ("By the number of rollouts k", lambda axes: _curves(axes, profile)),
        ("Model calls of a rollout", lambda axes: _histogram(axes, totals.steps)),
    ]
    if "output" in totals.tokens:
        pictures.append(("Output tokens", lambda axes: _histogram(axes, totals.tokens["output"])))
    if len(list(totals.series)) > 1:
        pictures.append(("Mean reward and output tokens over time", lambda a: _time(a, profile)))
    drawn = "".join(
        f"<figure>{_svg(draw, title)}<figcaption>{escape(title)}</figcaption></figure>"
        for title, draw in pictures
    )
    return f'<div class="pictures">{drawn}</div>'


def _svg(draw: Any, title: str) -> str:
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
            ("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color"), _INK
        ),
    }
    with mpl.rc_context(style):
        canvas = Canvas(figsize=(5.2, 2.8), layout="constrained")
        draw(canvas.add_subplot())
        out = StringIO()
        canvas.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    svg = re.sub(r"<metadata>.*?</metadata>", "", out.getvalue(), flags=re.DOTALL)
    svg = svg[svg.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{title}"', 1)
    for colour, own in ((_INK, "currentColor"), (_MAIN, "var(--main)"), (_OTHER, "var(--other)")):
        svg = svg.replace(colour, own)
    # Text has the colour of shapes, black, unless it is said.
    return svg.replace("<svg", '<svg fill="currentColor"', 1)


def _histogram(axes: Axes, found: Distribution) -> None:
    bars = found.bars()
    if all(low == high for low, high, _ in bars):
        axes.bar([f"{low:g}" for low, _, _ in bars], [n for *_, n in bars], color=_MAIN)
    else:
        widths = [high - low for low, high, _ in bars]
        lows = [low for low, *_ in bars]
        axes.bar(lows, [n for *_, n in bars], width=widths, align="edge", color=_MAIN)
    axes.set_ylabel("rollouts")


def _bands(axes: Axes, bands: dict[str, int]) -> None:
    names = ["never", "≤ ¼", "≤ ½", "≤ ¾", "< 1", "always"]
    axes.bar(names, list(bands.values()), color=_MAIN)
    axes.set_ylabel("tasks")


def _curves(axes: Axes, profile: Profile) -> None:
    names = {"pass_at": "pass@k", "pass_hat": "pass^k", "majority_at": "majority@k"}
    for (key, name), line in zip(names.items(), ("-", "--", ":"), strict=True):
        found = profile.estimates.get(key, {})
        if found:
            values = [figure.value for figure in found.values()]
            colour = _MAIN if key == "pass_at" else _OTHER
            axes.plot(list(found), values, line, color=colour, marker="o", label=name)
        if key == "pass_at" and all(figure.interval for figure in found.values()):
            ends = [figure.interval for figure in found.values() if figure.interval]
            low, high = [one for one, _ in ends], [one for _, one in ends]
            axes.fill_between(list(found), low, high, color=_MAIN, alpha=0.2)
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(profile.estimates.get("pass_at", {1: None})))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("k")
    axes.legend(frameon=False) if profile.estimates else None


def _time(axes: Axes, profile: Profile) -> None:
    parts = [(at, one) for at, one in profile.totals.series if one.judged]
    if not parts:
        return
    begin = parts[0][0]
    minutes = [(at - begin) / 60 for at, _ in parts]
    axes.plot(minutes, [one.reward / one.judged for _, one in parts], color=_MAIN)
    axes.set_ylabel("mean reward", color=_MAIN)
    axes.set_xlabel("minutes")
    other = axes.twinx()
    other.plot(minutes, [one.tokens / one.rollouts for _, one in parts], "--", color=_OTHER)
    other.set_ylabel("output tokens", color=_OTHER)
