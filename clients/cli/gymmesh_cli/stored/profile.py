"""gym-cli profile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gymmesh_cli.options import (
    FILE,
    TrackOptions,
    json_option,
    reward_range_option,
    rollouts_argument,
    track_options,
)
from gymmesh_cli.stored.pages import write_page
from gymmesh_cli.terminal import DONE, NOTHING_DONE, echo, echo_json, one_line
from gymmesh_runtime.text import shortened

if TYPE_CHECKING:
    from gymmesh_data.profile import Profile, TaskTotals
    from gymmesh_data.track import ProfileTracking

_MOST_SHOWN: Final = 12
_LONGEST_CELL: Final = 100
# Their calls can be concurrent, so a sum may be longer than the rollout.
_SUMMED: Final = {"model": " (sum of calls)", "tools": " (sum of calls)"}


@click.command("profile")
@rollouts_argument
@click.option(
    "--solved-at",
    type=float,
    default=1.0,
    show_default=True,
    metavar="R",
    help="A rollout with at least this reward solves the task.",
)
@click.option(
    "--answer",
    default="extracted_answer",
    show_default=True,
    metavar="KEY",
    help=(
        "For majority@k: key with the answer of a rollout, in the verifier's evidence or "
        "in the row."
    ),
)
@click.option(
    "--difficulty",
    default="difficulty",
    show_default=True,
    metavar="KEY",
    help="Tag of the task, or key of the row, with the difficulty of the task.",
)
@click.option(
    "--write-tasks",
    type=FILE,
    help=(
        "Write the tasks that --pass-rate selects to this file. The file is an --input of "
        "`gym-cli collect`."
    ),
)
@click.option(
    "--pass-rate",
    nargs=2,
    type=click.FloatRange(0, 1),
    metavar="LOW HIGH",
    help=(
        "With --write-tasks: select tasks whose pass rate is from LOW to HIGH (both "
        "included). Default: tasks that some rollouts solve and other rollouts don't "
        "solve."
    ),
)
@click.option("--html", type=FILE, help="Also write an HTML page with charts.")
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
@click.option(
    "--resamples", type=click.IntRange(min=0), default=2000, show_default=True, metavar="N",
    help="Number of bootstrap draws for the intervals. 0: no intervals.",
)  # fmt: skip
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the bootstrap draws. The same seed gives the same intervals.",
)
@reward_range_option
@track_options
@json_option
def profile(
    inputs: tuple[Path, ...],
    solved_at: float,
    answer: str,
    difficulty: str,
    write_tasks: Path | None,
    pass_rate: tuple[float, float] | None,
    html: Path | None,
    overwrite: bool,
    resamples: int,
    seed: int,
    reward_range: tuple[float, float],
    track: TrackOptions | None,
    as_json: bool,
) -> int:
    """Report statistics of rollouts, and warn of suspicious rollouts.

    \b
      gym-cli profile rollouts.jsonl
      gym-cli profile rollouts.jsonl --html report.html
      gym-cli profile rollouts.jsonl --write-tasks learnable.jsonl --pass-rate 0.1 0.9
      gym-cli profile rollouts.jsonl --track mlflow

    ROLLOUTS is the --output of `gym-cli collect` (the run can still be active), or another file
    with rows of rollouts. Several files become one report. Rollouts that failed or have no reward
    are not part of any reward figure, and never count as a reward of 0. The seconds of `model` and
    `tools` are sums over the calls of a rollout. If calls were concurrent, a sum can exceed the
    seconds of the whole rollout (`all`).

    Exit code 0: the report has rewards. 1: no rollout has a reward.
    """
    from gymmesh_client.safe_writes import refuse_inputs, refuse_used
    from gymmesh_data.profile import Fields, ProfileOptions, page_of, task_rows
    from gymmesh_data.profile import profile as make
    from gymmesh_data.profile.html import CHARTS

    if pass_rate is not None:
        _check_band(pass_rate, write_tasks)
    if html is not None:
        CHARTS.require("--html")
    outputs = [path for path in (html, write_tasks) if path is not None]
    refuse_inputs(outputs, {"the profile": inputs})
    for path in outputs:
        refuse_used(path, overwrite=overwrite)
    options = ProfileOptions(
        solved_at, resamples, seed, rewards=reward_range, fields=Fields(answer, difficulty)
    )
    tracking = None
    if track is not None:
        from gymmesh_cli.shared.tracking import profile_tracking_of

        tracking = profile_tracking_of(track)
    made = make(inputs, options, on_rollout=None if tracking is None else tracking.see)
    if as_json:
        echo_json(made.to_dict())
    else:
        echo("\n".join(map(one_line, lines_of(made))))
    if html is not None:
        write_page(html, page_of(made))
        echo(f"page          {one_line(str(html))}", err=as_json)
    if write_tasks is not None:
        written = _write_tasks(write_tasks, task_rows(inputs, _chosen(made, pass_rate)))
        name = one_line(str(write_tasks))
        echo(f"tasks         {written} in {name}", err=as_json)
        if written:
            echo(f"next          gym-cli collect --input {name}", err=as_json)
    if tracking is not None:
        _track(tracking, made, err=as_json)
    return DONE if made.mean is not None else NOTHING_DONE


def _track(tracking: ProfileTracking, made: Profile, *, err: bool) -> None:
    """Send the profile to its tracker, and say where it is."""
    import asyncio

    from gymmesh_cli.shared.tracking import send_profile

    begun: dict[str, Any] = {}
    asyncio.run(send_profile(tracking, made, begun.update))
    if begun:
        where = begun.get("url") or begun.get("id")
        echo(f"tracked       {one_line(f'{tracking.link.tracker}: {where}')}", err=err)


def _check_band(band: tuple[float, float], write_tasks: Path | None) -> None:
    """Refuse a --pass-rate that selects nothing. Raises UsageError."""
    low, high = band
    if write_tasks is None:
        raise click.UsageError("--pass-rate selects tasks for --write-tasks FILE; add this option")
    if low > high:
        raise click.UsageError(f"--pass-rate {low:g} {high:g}: LOW is greater than HIGH")


def _chosen(made: Profile, band: tuple[float, float] | None) -> Iterable[TaskTotals]:
    tasks = made.tasks_between(*(band or (0.0, 1.0)))
    return (task for task in tasks if band or 0 < task.solved < task.judged)


def _write_tasks(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write rows of tasks, and return how many. Raises UserError."""
    from gymmesh_client.problems import unwritable
    from gymmesh_client.safe_writes import make_folder, replaced
    from gymmesh_responses import dumps_clean

    written = 0
    try:
        make_folder(path.parent)
        with replaced(path) as draft, draft.open("wb") as file:
            for row in rows:
                file.write(dumps_clean(row) + b"\n")
                written += 1
    except OSError as error:
        raise unwritable(path, error) from None
    return written


def lines_of(made: Profile) -> Iterable[str]:
    """A profile as lines for a terminal."""
    from gymmesh_data.profile import available
    from gymmesh_data.profile.html import bounds_text, figure_text

    told, options, tasks = made.rollouts(), made.options, len(made.totals.tasks)
    yield f"rollouts      {told['completed']} completed, {told['failed']} failed, of {tasks} tasks"
    yield f"judged        {told['judged']}; without a reward: {told['unjudged']}"
    yield f"solved        if the reward is at least {options.solved_at:g}"
    yield f"mean reward   {figure_text(made.mean)}"
    if made.bounds is not None:
        yield f"bounds        {bounds_text(made.bounds)}"
    if made.median is not None:
        value, interval = made.median
        ends = "" if interval is None else f" [{interval[0]:.3f}, {interval[1]:.3f}]"
        yield f"median        {value:.3f}{ends} (median of the tasks' mean rewards)"
    names = {"pass_at": "pass@", "pass_hat": "pass^", "majority_at": "majority@", "avg_at": "avg@"}
    for key, name in names.items():
        for k, figure in made.estimates.get(key, {}).items():
            partly = f" over {figure.tasks} of {tasks} tasks" if figure.tasks < tasks else ""
            yield f"{f'{name}{k}':<13} {figure_text(figure)}{partly}"
    if options.resamples and not available():
        yield "intervals     need numpy: pip install 'gymmesh[profile]'"
    yield from _pictures(made)
    yield from _tables(made)
    for warning in made.warnings:
        yield f"check         {warning.text}"
    for name in made.left_out:
        yield f"omitted       {name}: too many values for a table"
    for name, count in sorted(made.totals.unread.items()):
        yield f"not read      {name}: values that are not numbers or are too large: {count}"


def _pictures(made: Profile) -> Iterable[str]:
    from gymmesh_client.summary import bars

    totals = made.totals
    names = ("never", "to 1/4", "to 1/2", "to 3/4", "below 1", "always")
    bands = list(zip(names, made.bands.values(), strict=True))
    yield from bars("tasks by pass rate", bands)
    for title, found in (("rewards", totals.reward), ("rollouts by model calls", totals.steps)):
        ranges = [(f"{a:.4g}" if a == b else f"{a:.3g} … {b:.3g}", n) for a, b, n in found.bars(10)]
        yield from bars(title, ranges)


def _tables(made: Profile) -> Iterable[str]:
    from gymmesh_data.profile.html import figure_text

    totals = made.totals
    yield from table(
        ("group", "tasks", "judged", "failed", "mean reward", "pass@1"),
        [
            (
                f"{one.kind} {one.name}",
                *map(str, (one.tasks, one.judged, one.failed)),
                figure_text(one.mean),
                figure_text(one.pass_rate),
            )
            for one in made.groups
        ],
    )
    yield from table(
        ("tool", "calls", "not valid", "errors", "rollouts"),
        [
            (name, str(one.calls), str(one.invalid), one.errors_text, str(one.rollouts))
            for name, one in sorted(totals.tools.items(), key=lambda kept: -kept[1].calls)
        ],
    )
    yield from table(
        ("failures", "rollouts"),
        [(" ".join(filter(None, cause)), str(n)) for cause, n in totals.failures.most_common()],
    )
    kinds = {f"tokens: {name}": one for name, one in sorted(totals.tokens.items())}
    kinds |= {
        f"seconds: {name}{_SUMMED.get(name, '')}": one
        for name, one in sorted(totals.latency.items())
    }
    kinds |= {f"component: {name}": one for name, one in sorted(totals.components.items())}
    yield from table(
        ("per rollout", "mean", "median", "p95", "max"),
        [
            (
                name,
                *(
                    f"{value or 0:.4g}"
                    for value in (one.mean, one.quantile(0.5), one.quantile(0.95), one.greatest)
                ),
            )
            for name, one in kinds.items()
        ],
    )


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterable[str]:
    """Lines of a table, the first column to the left; of many rows the first."""
    if not rows:
        return
    shown = [heads, *(_cells(row) for row in rows[:_MOST_SHOWN])]
    widths = [max(len(row[place]) for row in shown) for place in range(len(heads))]
    for first, *rest in shown:
        cells = [f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True)]
        yield "  ".join([f"{first:<{widths[0]}}", *cells]).rstrip()
    if len(rows) > _MOST_SHOWN:
        yield f"… and {len(rows) - _MOST_SHOWN} more; --json lists all"


def _cells(row: tuple[str, ...]) -> tuple[str, ...]:
    """A row whose names, which a file may make of any length, leave a table readable."""
    return tuple(shortened(one_line(cell), _LONGEST_CELL) for cell in row)
