"""gym-cli compare."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gymmesh_cli.options import FILE, json_option, reward_range_option
from gymmesh_cli.stored.pages import write_page
from gymmesh_cli.terminal import echo, one_line, report

if TYPE_CHECKING:
    from gymmesh_data.profile import Comparison, Curve


@click.command("compare")
@click.argument("inputs", metavar="A B…", nargs=-1, required=True, type=FILE)
@click.option(
    "--solved-at",
    type=float,
    default=1.0,
    show_default=True,
    metavar="R",
    help="For pass@k: a rollout with at least this reward solves the task.",
)
@click.option(
    "--most",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="N",
    help="List the N tasks with the largest changes of the mean reward.",
)
@click.option(
    "--resamples",
    type=click.IntRange(min=1),
    default=10000,
    show_default=True,
    metavar="N",
    help=(
        "Number of bootstrap draws for the intervals. If there are too many sign flips "
        "to try all, the sign-flip test also draws this number of sign flips."
    ),
)
@click.option("--html", type=FILE, help="Also write an HTML page with charts.")
@click.option("--overwrite", is_flag=True, help="Replace an existing page.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the random draws. The same seed gives the same figures.",
)
@reward_range_option
@json_option
def compare(
    inputs: tuple[Path, ...],
    solved_at: float,
    most: int,
    resamples: int,
    html: Path | None,
    overwrite: bool,
    seed: int,
    reward_range: tuple[float, float],
    as_json: bool,
) -> None:
    """Compare runs of the same tasks. The command compares each later run B with the first run A,
    task by task.

    \b
      gym-cli compare before.jsonl after.jsonl
      gym-cli compare base.jsonl step-100.jsonl step-200.jsonl --json
      gym-cli compare before.jsonl after.jsonl --html compared.html

    A and B are files like ROLLOUTS of `gym-cli profile`. A comparison uses only the tasks that have
    rewards in both runs. With three or more runs, such as the checkpoints of a training run, a
    table also shows the mean reward of each run. The table uses only tasks that have rewards in all
    runs. The same --seed gives the same figures.
    """
    from gymmesh_client.safe_writes import refuse_inputs, refuse_used
    from gymmesh_data.profile import (
        ProfileOptions,
        compare_runs,
        comparison_page,
        curve_of,
        read_runs,
    )
    from gymmesh_data.profile.html import CHARTS

    if len(inputs) < 2:
        raise click.UsageError(
            "pass at least two runs. To profile one run: gym-cli profile ROLLOUTS"
        )
    CHARTS.require("gym-cli compare")
    if html is not None:
        refuse_inputs([html], {"the comparison": inputs})
        refuse_used(html, overwrite=overwrite)
    options = ProfileOptions(solved_at, resamples, seed, rewards=reward_range)
    runs = read_runs(inputs, options)
    found = compare_runs(runs, options)
    curve = curve_of(runs, options) if len(runs) > 2 else None
    told = {
        "solved_at": solved_at,
        "seed": seed,
        "comparisons": [one.to_dict(most) for one in found],
        "curve": curve and curve.to_dict(),
    }
    lines = [line for one in found for line in _lines(one, most, several=len(found) > 1)]
    report(as_json, told, [*lines, *(() if curve is None else _curve_lines(curve))])
    if html is not None:
        write_page(html, comparison_page(found, options, most, curve))
        echo(f"page          {one_line(str(html))}", err=as_json)


def _lines(one: Comparison, most: int, *, several: bool) -> Iterable[str]:
    from gymmesh_cli.stored.profile import table
    from gymmesh_data.profile.html import bounds_text, figure_text

    wins, losses, shared = one.wins, one.losses, len(one.changes)
    yield f"before        {one.before}"
    yield f"after         {one.after}"
    yield f"tasks         {shared} in both runs; not counted: " + (
        f"{one.only_before} only in before, {one.only_after} only in after"
    )
    if one.other_prompts:
        yield (
            (f"check         the prompts of {one.other_prompts} of these tasks differ between the ")
            + "two runs. The two runs possibly use one id for different tasks"
        )
    for verdicts in one.other_verdicts:
        yield (
            f"check         verdicts of {verdicts}. Rescore one run with the other run's verifier: "
            "gym-cli reverify"
        )
    yield f"mean reward   {one.mean_before:.3f} before, {one.mean_after:.3f} after"
    yield f"difference    {figure_text(one.difference)}"
    if one.bounds is not None:
        yield f"bounds        {bounds_text(one.bounds)}"
    for k, figure in one.pass_at.items():
        partly = f" over {figure.tasks} of {shared} tasks" if figure.tasks < shared else ""
        yield f"{f'pass@{k}':<13} {figure_text(figure)} (difference){partly}"
    kind = "all sign flips tried" if one.exact else "random sign flips"
    corrected = f", {one.corrected:.4f} after Holm's correction" if several else ""
    yield f"sign flip     p = {one.p:.4f}{corrected} ({kind})"
    if one.mcnemar is None:
        yield "McNemar       not computed: needs rewards of 0 and 1, and one rollout per task"
    else:
        test = one.mcnemar
        yield f"McNemar       p = {test.p:.4f} ({test.gained} gained, {test.lost} lost)"
    ties = shared - wins - losses
    yield f"by task       {wins} better, {losses} worse, {ties} unchanged"
    yield from table(
        ("changed most", "before", "after", "difference"),
        [
            (task.task_id, f"{task.before:.3f}", f"{task.after:.3f}", f"{task.difference:+.3f}")
            for task in one.changes[:most]
            if task.difference
        ],
    )


def _curve_lines(curve: Curve) -> Iterable[str]:
    from gymmesh_cli.stored.profile import table
    from gymmesh_data.profile.html import curve_rows

    yield f"all runs      over the {curve.tasks} tasks that every run judged"
    yield from table(*curve_rows(curve))
