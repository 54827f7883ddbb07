"""A profile as one HTML file: figures, tables, and pictures as SVG within it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gymmesh_data.profile.distributions import Distribution
from gymmesh_data.profile.html import (
    CHARTS,
    MAIN,
    OTHER,
    bounds_text,
    cards,
    document,
    figure_text,
    pictures,
    table,
    text,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gymmesh_data.profile.report import Profile


def page_of(profile: Profile) -> str:
    """The page of a profile.

    Raises:
        ConfigError: matplotlib is missing; the text says what to install.
    """
    CHARTS.require("an HTML page")
    title = "Profile of " + ", ".join(profile.inputs)
    rollouts = profile.rollouts()
    parts = [
        f"<p>A task is solved at a reward of {profile.options.solved_at:g} or more. "
        f"± is the standard error, clustered by task. The numbers in [ ] are the "
        f"{profile.options.confidence:.0%} interval of a bootstrap over tasks.</p>",
        _cards(profile, rollouts),
        "".join(f'<p class="warn">{text(one.text)}</p>' for one in profile.warnings),
        _pictures(profile),
        *_tables(profile),
    ]
    return document(title, parts)


def _cards(profile: Profile, rollouts: dict[str, int]) -> str:
    found = {"mean reward": profile.mean}
    found |= {f"pass@{k}": one for k, one in profile.estimates.get("pass_at", {}).items()}
    names = {"judged": "judged", "failed": "failed", "unjudged": "without a reward"}
    counts = [(name, str(rollouts[key])) for key, name in names.items()]
    if profile.bounds is not None:
        counts.append(("bounds of the mean reward", bounds_text(profile.bounds)))
    return cards([*((name, figure_text(one)) for name, one in found.items()), *counts])


def _tables(profile: Profile) -> Iterable[str]:
    totals = profile.totals
    yield table(
        "Groups",
        ("group", "tasks", "judged", "failed", "mean reward", "pass@1"),
        [
            (
                *(f"{one.kind}: {one.name}", one.tasks, one.judged, one.failed),
                *map(figure_text, (one.mean, one.pass_rate)),
            )
            for one in profile.groups
        ],
    )
    yield table(
        "Tools",
        ("tool", "calls", "not valid", "errors", "rollouts"),
        [
            (name, t.calls, t.invalid, t.errors_text, t.rollouts)
            for name, t in sorted(totals.tools.items())
        ],
    )
    yield table(
        "Failures",
        ("boundary", "reason", "component", "rollouts"),
        [(*cause, count) for cause, count in totals.failures.most_common()],
    )
    yield table("Retried model calls", ("reason", "calls"), totals.model_retries.most_common())
    for title, found in (
        ("Reward components", totals.components),
        ("Tokens", totals.tokens),
        ("Latency in seconds (model, tools: sum of calls)", totals.latency),
    ):
        yield _spread(title, found)


def _spread(title: str, found: dict[str, Distribution]) -> str:
    heads = ("", "rollouts", "mean", "p5", "median", "p95", "max")
    rows = []
    for name, one in sorted(found.items()):
        values = (one.mean, one.quantile(0.05), one.quantile(0.5), one.quantile(0.95), one.greatest)
        rows.append((name, one.count, *(f"{value:.4g}" for value in values if value is not None)))
    return table(title, heads, rows)


def _pictures(profile: Profile) -> str:
    totals = profile.totals
    found: list[tuple[str, Callable[[Axes], None]]] = [
        ("Rewards", lambda axes: _histogram(axes, totals.reward)),
        ("Tasks by pass rate", lambda axes: _bands(axes, profile.bands)),
        ("By the number of rollouts k", lambda axes: _curves(axes, profile)),
        ("Model calls of a rollout", lambda axes: _histogram(axes, totals.steps)),
    ]
    if "output" in totals.tokens:
        found.append(("Output tokens", lambda axes: _histogram(axes, totals.tokens["output"])))
    if len(list(totals.series)) > 1:
        found.append(("Mean reward and output tokens over time", lambda a: _time(a, profile)))
    return pictures(found)


def _histogram(axes: Axes, found: Distribution) -> None:
    bars = found.bars()
    if all(low == high for low, high, _ in bars):
        axes.bar([f"{low:g}" for low, _, _ in bars], [n for *_, n in bars], color=MAIN)
    else:
        widths = [high - low for low, high, _ in bars]
        lows = [low for low, *_ in bars]
        axes.bar(lows, [n for *_, n in bars], width=widths, align="edge", color=MAIN)
    axes.set_ylabel("rollouts")


def _bands(axes: Axes, bands: dict[str, int]) -> None:
    names = ["never", "≤ ¼", "≤ ½", "≤ ¾", "< 1", "always"]
    axes.bar(names, list(bands.values()), color=MAIN)
    axes.set_ylabel("tasks")


def _curves(axes: Axes, profile: Profile) -> None:
    names = {"pass_at": "pass@k", "pass_hat": "pass^k", "majority_at": "majority@k"}
    for (key, name), line in zip(names.items(), ("-", "--", ":"), strict=True):
        found = profile.estimates.get(key, {})
        if found:
            values = [figure.value for figure in found.values()]
            colour = MAIN if key == "pass_at" else OTHER
            axes.plot(list(found), values, line, color=colour, marker="o", label=name)
        if key == "pass_at" and all(figure.interval for figure in found.values()):
            ends = [figure.interval for figure in found.values() if figure.interval]
            low, high = [one for one, _ in ends], [one for _, one in ends]
            axes.fill_between(list(found), low, high, color=MAIN, alpha=0.2)
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
    axes.plot(minutes, [one.reward / one.judged for _, one in parts], color=MAIN)
    axes.set_ylabel("mean reward", color=MAIN)
    axes.set_xlabel("minutes")
    other = axes.twinx()
    other.plot(minutes, [one.tokens / one.rollouts for _, one in parts], "--", color=OTHER)
    other.set_ylabel("output tokens", color=OTHER)
