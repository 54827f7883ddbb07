"""Comparisons of runs as one HTML file, in the manner of a profile's page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gymmesh_data.profile.html import (
    CHARTS,
    MAIN,
    OTHER,
    bounds_text,
    cards,
    curve_rows,
    document,
    figure_text,
    pictures,
    table,
    text,
)
from gymmesh_runtime.text import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gymmesh_data.profile.comparison import Comparison
    from gymmesh_data.profile.curve import Curve
    from gymmesh_data.profile.report import ProfileOptions

# Cells along a side of the picture of all tasks, so that it stays small however many there are.
_CELLS: Final = 40
_BARS: Final = 21
_NAME: Final = 24  # characters of a run's name under its point


def comparison_page(
    found: Sequence[Comparison], options: ProfileOptions, most: int, curve: Curve | None = None
) -> str:
    """The page of some comparisons with one run.

    Args:
        most: the number of tasks to list, those with the largest change.
        curve: the curve of the same runs, shown first; None for two runs.

    Raises:
        ConfigError: matplotlib is missing; the text says what to install.
    """
    CHARTS.require("an HTML page")
    names = ", ".join(one.after for one in found)
    parts = [
        f"<p>Runs are paired by task. A task is solved at a reward of {options.solved_at:g} or "
        f"more. ± is the standard error. The numbers in [ ] are the {options.confidence:.0%} "
        "interval of a bootstrap over tasks. A difference is the value after minus the value "
        "before.</p>",
        *(() if curve is None else _curve(curve)),
        *(part for one in found for part in _sections(one, most, several=len(found) > 1)),
    ]
    return document(f"{names} compared with {found[0].before}", parts)


def _curve(curve: Curve) -> Iterable[str]:
    yield pictures([("Mean reward by run", partial(_means, curve))])
    yield table(f"All runs, over the {curve.tasks} tasks that every run judged", *curve_rows(curve))


def _means(curve: Curve, axes: Axes) -> None:
    places = range(len(curve.points))
    values = [one.mean.value for one in curve.points]
    ends = [one.mean.interval or (one.mean.value, one.mean.value) for one in curve.points]
    axes.fill_between(
        places, [low for low, _ in ends], [high for _, high in ends], color=MAIN, alpha=0.2
    )
    axes.plot(places, values, color=MAIN, marker="o")
    for place, one in enumerate(curve.points):
        if one.bounds is not None:
            axes.plot([place, place], [one.bounds.low, one.bounds.high], color=OTHER, linewidth=1)
    axes.set_xticks(
        places,
        [shortened(Path(one.run).stem, _NAME) for one in curve.points],
        rotation=20,
        ha="right",
    )
    axes.set_ylabel("mean reward")


def _sections(one: Comparison, most: int, *, several: bool) -> Iterable[str]:
    if several:
        yield f"<h2>{text(one.after)}</h2>"
    ties = len(one.changes) - one.wins - one.losses
    kind = "all sign flips tried" if one.exact else "random sign flips"
    corrected = f", {one.corrected:.4f} after Holm's correction" if several else ""
    found = [
        ("mean reward before", f"{one.mean_before:.3f}"),
        ("mean reward after", f"{one.mean_after:.3f}"),
        ("difference", figure_text(one.difference)),
        ("sign flip", f"p = {one.p:.4f}{corrected} ({kind})"),
        ("by task", f"{one.wins} better, {one.losses} worse, {ties} unchanged"),
    ]
    if one.bounds is not None:
        found.append(("bounds of the difference", bounds_text(one.bounds)))
    if one.mcnemar is not None:
        told = f"p = {one.mcnemar.p:.4f} ({one.mcnemar.gained} gained, {one.mcnemar.lost} lost)"
        found.append(("McNemar", told))
    yield cards(found)
    yield (
        f"<p>Tasks judged in both runs: {len(one.changes)}. Not counted: {one.only_before} "
        f"judged only before, {one.only_after} judged only after.</p>"
    )
    if one.other_prompts:
        yield (
            f"<p>Look at the task files: the prompts of {one.other_prompts} of these tasks "
            "differ between the two runs.</p>"
        )
    for verdicts in one.other_verdicts:
        yield (
            f"<p>Verdicts of {text(verdicts)}. Rescore one run with the other run's verifier: "
            "gym-cli reverify.</p>"
        )
    yield pictures(
        [
            ("Tasks by their mean reward before and after", partial(_tasks, one)),
            ("Tasks by the difference", partial(_differences, one)),
            ("Differences with their intervals", partial(_figures, one)),
        ]
    )
    rows = [(f"pass@{k}", figure_text(figure), figure.tasks) for k, figure in one.pass_at.items()]
    yield table("Differences of pass@k", ("", "difference", "tasks"), rows)
    yield table(
        "Changed most",
        ("task", "environment", "before", "after", "difference"),
        [
            (
                task.task_id,
                task.environment,
                f"{task.before:.3f}",
                f"{task.after:.3f}",
                f"{task.difference:+.3f}",
            )
            for task in one.changes[:most]
            if task.difference
        ],
    )


def _tasks(one: Comparison, axes: Axes) -> None:
    ends = [value for task in one.changes for value in (task.before, task.after)]
    low, high = min(ends), max(ends)
    side = (high - low) / _CELLS or 1.0
    places = Counter(
        (round((task.before - low) / side), round((task.after - low) / side))
        for task in one.changes
    )
    largest = max(places.values())
    axes.plot([low, high], [low, high], color=OTHER, linewidth=1)
    axes.scatter(
        [low + across * side for across, _ in places],
        [low + up * side for _, up in places],
        s=[8 + 140 * count / largest for count in places.values()],
        color=MAIN,
        alpha=0.6,
    )
    axes.set_xlabel("before")
    axes.set_ylabel("after")


def _differences(one: Comparison, axes: Axes) -> None:
    found = [task.difference for task in one.changes]
    most = max(map(abs, found)) or 1.0
    axes.hist(found, bins=_BARS, range=(-most, most), color=MAIN)
    axes.axvline(0, color=OTHER, linewidth=1)
    axes.set_xlabel("difference")
    axes.set_ylabel("tasks")


def _figures(one: Comparison, axes: Axes) -> None:
    shown = {"mean reward": one.difference} | {f"pass@{k}": f for k, f in one.pass_at.items()}
    for place, figure in enumerate(shown.values()):
        if figure.interval is not None:
            axes.plot(figure.interval, [place, place], color=MAIN)
        axes.plot([figure.value], [place], "o", color=MAIN)
    axes.axvline(0, color=OTHER, linewidth=1)
    axes.set_yticks(range(len(shown)), list(shown))
    axes.invert_yaxis()
    axes.set_xlabel("difference")
