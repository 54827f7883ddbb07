"""Options that say how a run is dispatched: how many at a time, in what order, how patiently."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gymmesh_cli.options.groups import grouped
from gymmesh_cli.options.shared import timeout_option

if TYPE_CHECKING:
    from gymmesh_client import CollectOptions

_ORDERS: Final = ("tasks", "interleaved", "longest-first")
_DAY_S: Final = 86_400
_SECONDS: Final = click.FloatRange(min=0, min_open=True, max=30 * _DAY_S)


def _pace_of(values: dict[str, Any]) -> CollectOptions:
    """The options of a collector, but for `length`, which is read from --longest-first-from."""
    from gymmesh_client import CollectOptions, Order

    stream, groups = values.pop("stream"), values.pop("stream_groups")
    if groups is not None and not stream:
        raise click.UsageError("--stream-groups is about --stream; add that, too")
    if stream and values["order"] == "interleaved" and values["repeats"] > 1:
        raise click.UsageError(
            "--stream hands out whole groups, and --order interleaved finishes them all at "
            "the end; leave out one of the two"
        )
    if values["lengths"] is not None and values["order"] != "longest-first":
        raise click.UsageError("--longest-first-from is about --order longest-first")
    values["hand_out"] = (groups or 16) if stream else 0
    values["shares"] = _shares(values["shares"])
    values["order"] = Order(values["order"])
    for name in ("rollout_s", "deadline_s"):
        values[name] = math.inf if values[name] is None else values[name]
    named = [one.name for one in fields(CollectOptions) if one.name in values]
    return CollectOptions(**{name: values.pop(name) for name in named})


def _shares(given: tuple[str, ...]) -> dict[str, float]:
    shares: dict[str, float] = {}
    for one in given:
        name, equals, weight = one.rpartition("=")
        try:
            value = float(weight)
        except ValueError:
            value = 0.0
        if not equals or not name or not 0 < value < math.inf or name in shares:
            raise click.UsageError(
                f"--share {one}: must be written ENV=WEIGHT, each environment once, with a weight "
                "above 0"
            )
        shares[name] = value
    return shares


pace_options = grouped(
    "pace",
    _pace_of,
    click.option(
        "--num-repeats",
        "-n",
        "repeats",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Rollouts per task.",
    ),
    click.option(
        "--concurrency",
        type=click.IntRange(min=1, max=100_000),
        default=64,
        show_default=True,
        help="The most rollouts in flight; fewer while agents or environments are full.",
    ),
    click.option(
        "--max-attempts",
        type=click.IntRange(min=1, max=100),
        default=2,
        show_default=True,
        help="Attempts of a rollout that failed where a retry is safe.",
    ),
    click.option(
        "--retry-share",
        type=click.FloatRange(min=0, max=100),
        default=1.0,
        show_default=True,
        metavar="SHARE",
        help="Retries over the whole run: at most this share of the rollouts started, and 100.",
    ),
    timeout_option(900.0, "one attempt"),
    click.option(
        "--rollout-timeout",
        "rollout_s",
        type=_SECONDS,
        metavar="SECONDS",
        help="How long all attempts of a rollout together may take, waits included.",
    ),
    click.option(
        "--deadline",
        "deadline_s",
        type=_SECONDS,
        metavar="SECONDS",
        help="When the run is to end: it then starts no more, and --grace begins.",
    ),
    click.option(
        "--grace",
        "grace_s",
        type=click.FloatRange(min=0, max=3600),
        default=10.0,
        show_default=True,
        metavar="SECONDS",
        help="How long rollouts in flight may go on after the first Ctrl-C or the deadline.",
    ),
    click.option(
        "--patience",
        "patience_s",
        type=click.FloatRange(min=0, max=_DAY_S),
        default=300.0,
        show_default=True,
        metavar="SECONDS",
        help="How long an agent, a model or an environment may be away before the run ends. What "
        "needs it waits meanwhile, and no attempt is used up.",
    ),
    click.option(
        "--max-failures",
        type=click.IntRange(min=1),
        metavar="N",
        help="End the run after N failed rollouts; by default however many fail.",
    ),
    click.option(
        "--max-alike",
        type=click.IntRange(min=0),
        default=20,
        show_default=True,
        metavar="N",
        help="End the run after N rollouts that failed one after the other for the same reason, "
        "which no retry mends; 0: go on.",
    ),
    click.option(
        "--starts-per-s",
        type=click.FloatRange(min=0, min_open=True),
        metavar="N",
        help="The most rollouts started a second.",
    ),
    click.option(
        "--share",
        "shares",
        multiple=True,
        metavar="ENV=WEIGHT",
        help="How often an environment's rollouts are started beside those of others; others "
        "weigh 1. Repeatable.",
    ),
    click.option(
        "--order",
        type=click.Choice(_ORDERS),
        default="tasks",
        show_default=True,
        help="All repeats of a task and then the next; or a repeat of each task, round by round; "
        "or the longest tasks first.",
    ),
    click.option(
        "--longest-first-from",
        "lengths",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="ROWS",
        help="With --order longest-first: rows of an earlier run, whose output tokens say how "
        "long a task is. Otherwise its prompt does.",
    ),
    click.option(
        "--stream",
        is_flag=True,
        help="Hand finished groups (all repeats of a task) to a trainer while the run goes on.",
    ),
    click.option(
        "--stream-groups",
        type=click.IntRange(min=1, max=10_000),
        metavar="N",
        help="With --stream: start no new group while the trainer has not acknowledged N; by "
        "default 16.",
    ),
)
