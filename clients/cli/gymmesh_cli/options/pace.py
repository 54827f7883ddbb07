"""Options that say how a run is dispatched: how many at a time, in what order, how patiently."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gymmesh_cli.options.groups import F, grouped
from gymmesh_cli.options.shared import timeout_option

if TYPE_CHECKING:
    from gymmesh_client import CollectOptions

_ORDERS: Final = ("tasks", "interleaved", "longest-first")
_DAY_S: Final = 86_400
_SECONDS: Final = click.FloatRange(min=0, min_open=True, max=30 * _DAY_S)


@dataclass(frozen=True, slots=True)
class PaceOptions:
    """What the user said; the fields are named as in CollectOptions.

    Attributes:
        lengths: rows of an earlier run that say how long each task's rollouts are.
    """

    repeats: int
    concurrency: int
    max_attempts: int
    retry_share: float
    timeout_s: float
    rollout_s: float | None
    deadline_s: float | None
    grace_s: float
    patience_s: float
    max_failures: int | None
    max_alike: int
    starts_per_s: float | None
    shares: dict[str, float]
    order: str
    lengths: Path | None
    hand_out: int

    def collect_options(self) -> CollectOptions:
        """The options of a collector. Raises UserError when `lengths` cannot be read."""
        from gymmesh_client import CollectOptions, Order, open_run
        from gymmesh_client.collect.order import length_from

        length = None
        if self.lengths is not None:
            with open_run(self.lengths) as run:
                length = length_from(run.rows())
        return CollectOptions(
            repeats=self.repeats,
            concurrency=self.concurrency,
            max_attempts=self.max_attempts,
            retry_share=self.retry_share,
            timeout_s=self.timeout_s,
            rollout_s=math.inf if self.rollout_s is None else self.rollout_s,
            deadline_s=math.inf if self.deadline_s is None else self.deadline_s,
            grace_s=self.grace_s,
            patience_s=self.patience_s,
            max_failures=self.max_failures,
            max_alike=self.max_alike,
            starts_per_s=self.starts_per_s,
            shares=self.shares,
            order=Order(self.order),
            length=length,
            hand_out=self.hand_out,
        )


def pace_options(command: F) -> F:
    """Add the options; the command takes them as `pace: PaceOptions`."""
    return grouped(command, "pace", _OPTIONS, _pace_of)


def _pace_of(values: dict[str, Any]) -> PaceOptions:
    values["shares"] = _shares(values["shares"])
    stream, groups = values.pop("stream"), values.pop("stream_groups")
    if groups is not None and not stream:
        raise click.UsageError("--stream-groups is about --stream; add that, too")
    values["hand_out"] = (groups or 16) if stream else 0
    if stream and values["order"] == "interleaved" and values["repeats"] > 1:
        raise click.UsageError(
            "--stream hands out whole groups, and --order interleaved finishes them all at "
            "the end; leave out one of the two"
        )
    if values["lengths"] is not None and values["order"] != "longest-first":
        raise click.UsageError("--longest-first-from is about --order longest-first")
    return PaceOptions(**{name: values.pop(name) for name in PaceOptions.__dataclass_fields__})


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


_OPTIONS: Final = (
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
