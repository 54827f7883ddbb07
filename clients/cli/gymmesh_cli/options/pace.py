"""Options that say how a run is dispatched: how many at a time, in what order, how patiently."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gymmesh_cli.options.groups import grouped
from gymmesh_cli.options.shared import timeout_option
from gymmesh_cli.terminal import OptionGroup, option

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
        raise click.UsageError("--stream-groups limits --stream; add --stream")
    if values["consumer_lease_s"] is None:
        del values["consumer_lease_s"]
    elif not stream:
        raise click.UsageError("--stream-lease is for trainers that read --stream; add --stream")
    if stream and values["order"] == "interleaved" and values["repeats"] > 1:
        raise click.UsageError(
            "--stream hands out whole groups, but --order interleaved finishes all groups at the "
            "end. Remove one of the two options"
        )
    if values["lengths"] is not None and values["order"] != "longest-first":
        raise click.UsageError("--longest-first-from needs --order longest-first")
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
                f"--share {one}: expected ENV=WEIGHT with a weight above 0, and at most "
                "one --share for each environment"
            )
        shares[name] = value
    return shares


pace_options = grouped(
    "pace",
    _pace_of,
    option(
        "--num-repeats",
        "-n",
        "repeats",
        group=OptionGroup.RUNNING,
        brief="Rollouts per task.  [default: 1]",
        type=click.IntRange(min=1),
        metavar="N",
        default=1,
        show_default=True,
        help="Rollouts per task.",
    ),
    option(
        "--concurrency",
        group=OptionGroup.RUNNING,
        brief="Maximum number of rollouts at a time.  [default: 64]",
        type=click.IntRange(min=1, max=100_000),
        metavar="N",
        default=64,
        show_default=True,
        help=(
            "Maximum number of rollouts that run at a time. While agents or environments are "
            "at their limits, fewer rollouts run."
        ),
    ),
    option(
        "--max-attempts",
        group=OptionGroup.FAILURES,
        type=click.IntRange(min=1, max=100),
        metavar="N",
        default=2,
        show_default=True,
        help=(
            "Maximum number of attempts per rollout. The run retries only failures that are "
            "safe to retry."
        ),
    ),
    option(
        "--retry-share",
        group=OptionGroup.FAILURES,
        type=click.FloatRange(min=0, max=100),
        default=1.0,
        show_default=True,
        metavar="SHARE",
        help=(
            "Limit the retries of the whole run to 100, plus SHARE retries for each started "
            "rollout."
        ),
    ),
    timeout_option(900.0, "one attempt"),
    option(
        "--rollout-timeout",
        "rollout_s",
        group=OptionGroup.FAILURES,
        type=_SECONDS,
        metavar="SECONDS",
        help="Time limit for all attempts of a rollout, including waits.",
    ),
    option(
        "--deadline",
        "deadline_s",
        group=OptionGroup.FAILURES,
        type=_SECONDS,
        metavar="SECONDS",
        help="Time limit for the run. When the time expires, no rollout starts and --grace begins.",
    ),
    option(
        "--grace",
        "grace_s",
        group=OptionGroup.FAILURES,
        type=click.FloatRange(min=0, max=3600),
        default=10.0,
        show_default=True,
        metavar="SECONDS",
        help=("After the first Ctrl-C or the deadline, running rollouts have this time to finish."),
    ),
    option(
        "--patience",
        "patience_s",
        group=OptionGroup.FAILURES,
        type=click.FloatRange(min=0, max=_DAY_S),
        default=300.0,
        show_default=True,
        metavar="SECONDS",
        help=(
            "End the run if an agent, model or environment is unreachable for this time. "
            "Until then, rollouts that need the unreachable service wait. The wait does not "
            "count as an attempt."
        ),
    ),
    option(
        "--max-failures",
        group=OptionGroup.FAILURES,
        type=click.IntRange(min=1),
        metavar="N",
        help="End the run after N failed rollouts. Default: no limit.",
    ),
    option(
        "--max-alike",
        group=OptionGroup.FAILURES,
        type=click.IntRange(min=0),
        default=20,
        show_default=True,
        metavar="N",
        help=(
            "End the run if N consecutive rollouts fail for the same reason and a retry "
            "can't help. 0: no limit."
        ),
    ),
    option(
        "--starts-per-s",
        group=OptionGroup.RUNNING,
        type=click.FloatRange(min=0, min_open=True),
        metavar="N",
        help="Start at most N rollouts per second.",
    ),
    option(
        "--share",
        "shares",
        group=OptionGroup.RUNNING,
        multiple=True,
        metavar="ENV=WEIGHT",
        help=(
            "Start rollouts of the environment ENV at this relative rate. With math=2, "
            "rollouts of math start at twice the rate of an environment with weight 1. "
            "Default weight: 1. Repeatable."
        ),
    ),
    option(
        "--order",
        group=OptionGroup.RUNNING,
        type=click.Choice(_ORDERS),
        default="tasks",
        show_default=True,
        help=(
            "Order in which rollouts start. tasks: all repeats of a task, then the next "
            "task. interleaved: one repeat of each task per round. longest-first: the "
            "longest tasks first."
        ),
    ),
    option(
        "--longest-first-from",
        "lengths",
        group=OptionGroup.RUNNING,
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="ROWS",
        help=(
            "With --order longest-first: rank the tasks by the output tokens in these rows "
            "of an earlier run. Default: rank the tasks by the lengths of the prompts."
        ),
    ),
    option(
        "--stream",
        group=OptionGroup.TRAINING,
        is_flag=True,
        help="During the run, hand each finished group (all repeats of a task) to a trainer.",
    ),
    option(
        "--stream-groups",
        group=OptionGroup.TRAINING,
        type=click.IntRange(min=1, max=10_000),
        metavar="N",
        help=(
            "With --stream: start no new group while the trainer has received N groups and "
            "not acknowledged these groups. If several ranks (trainer processes) share the "
            "groups, the limit of each rank is N / (number of ranks). Default: 16."
        ),
    ),
    option(
        "--stream-lease",
        "consumer_lease_s",
        group=OptionGroup.TRAINING,
        type=click.FloatRange(min=0, min_open=True, max=_DAY_S),
        metavar="SECONDS",
        help=(
            "With --stream and several ranks: if a rank has no connection for this time, the "
            "other ranks receive the groups of the disconnected rank. Default: 60."
        ),
    ),
)
