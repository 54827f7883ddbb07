"""Options that send a run's figures to a tracker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import click

from gymmesh_cli.options.groups import grouped
from gymmesh_cli.terminal import OptionGroup, option

_TRACKERS: Final = ("mlflow", "trackio", "wandb")


@dataclass(frozen=True, slots=True)
class TrackOptions:
    """The user's options for a tracker.

    Attributes:
        tracker: one of `gymmesh_data.track.TRACKERS`.
        project: the tracker's project; None: the value of the tracker's own variable, or `gymmesh`.
        samples: the most rollouts in a table of samples; 0: no table.
    """

    tracker: str
    project: str | None
    samples: int


def _track_of(values: dict[str, Any]) -> TrackOptions | None:
    """The options, if a tracker is named. Raises ConfigError when its library is missing."""
    names = ("tracker", "track_project", "track_samples")
    tracker, project, samples = (values.pop(name) for name in names)
    if tracker is None:
        if project is not None or samples is not None:
            raise click.UsageError("--track-project and --track-samples need --track")
        return None
    from gymmesh_data.track import extra_of

    extra_of(tracker).require(f"--track {tracker}")
    return TrackOptions(tracker, project, 32 if samples is None else samples)


track_options = grouped(
    "track",
    _track_of,
    option(
        "--track",
        "tracker",
        group=OptionGroup.MONITORING,
        type=click.Choice(_TRACKERS),
        help=(
            "Send metrics and a table of sampled rollouts to this tracker. Install the "
            "tracker first, for example: pip install 'gymmesh[wandb]'. The tracker also "
            "reads environment variables, such as WANDB_API_KEY."
        ),
    ),
    option(
        "--track-project",
        group=OptionGroup.MONITORING,
        metavar="NAME",
        help=(
            "With --track: name of the tracker's project (in MLflow: the experiment). "
            "Default: the tracker's environment variable, such as WANDB_PROJECT, or else "
            "gymmesh."
        ),
    ),
    option(
        "--track-samples",
        group=OptionGroup.MONITORING,
        type=click.IntRange(min=0, max=1000),
        metavar="N",
        help="With --track: the table has at most N rollouts. Default: 32. 0: no table.",
    ),
)
