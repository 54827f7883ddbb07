"""Options that send a run's figures to a tracker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import click

from gymmesh_cli.options.groups import grouped

_TRACKERS: Final = ("mlflow", "trackio", "wandb")


@dataclass(frozen=True, slots=True)
class TrackOptions:
    """What the user said.

    Attributes:
        tracker: one of `gymmesh_data.track.TRACKERS`.
        project: the tracker's project; None: what its own variable says, or `gymmesh`.
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
            raise click.UsageError("--track-project and --track-samples go with --track")
        return None
    from gymmesh_data.track import extra_of

    extra_of(tracker).require(f"--track {tracker}")
    return TrackOptions(tracker, project, 32 if samples is None else samples)


track_options = grouped(
    "track",
    _track_of,
    click.option(
        "--track",
        "tracker",
        type=click.Choice(_TRACKERS),
        help="Send the figures and a table of sampled rollouts to a tracker, which must be "
        "installed, such as pip install 'gymmesh[wandb]'. It is configured by its own variables.",
    ),
    click.option(
        "--track-project",
        metavar="NAME",
        help="With --track: the project, or MLflow's experiment; by default gymmesh.",
    ),
    click.option(
        "--track-samples",
        type=click.IntRange(min=0, max=1000),
        metavar="N",
        help="With --track: the most rollouts in the table, by default 32; 0: no table.",
    ),
)
