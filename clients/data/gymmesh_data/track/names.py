"""The trackers, the packages that each tracker needs, and the names of runs at a tracker."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from gymmesh_runtime.extras import Extra

# The tracker's name, and the variable by which its users name a project.
_PROJECT_IN: Final = {
    "mlflow": "MLFLOW_EXPERIMENT_NAME",
    "trackio": "TRACKIO_PROJECT",
    "wandb": "WANDB_PROJECT",
}
TRACKERS: Final = tuple(_PROJECT_IN)
DEFAULT_PROJECT: Final = "gymmesh"


# What of NAME.run.json is a run's configuration.
_CONFIG: Final = (
    *("run_id", "repeats", "shard", "configuration", "options", "tasks", "seeds", "services"),
    *("versions_seen", "versions"),
)


@dataclass(frozen=True, slots=True)
class TrackerRun:
    """A run, for its tracker.

    Attributes:
        project: the project; MLflow calls it an experiment.
        name: the name for people.
        group: the common name of runs that belong together, such as the shards of a run.
        config: the run's configuration, JSON values without secrets.
        kind: the kind of command that made the run, for trackers that distinguish jobs.
        id: the tracker's own id of a resumed run; empty for a new run.
    """

    project: str
    name: str
    group: str
    config: dict[str, Any] = field(default_factory=dict)
    kind: str = "collect"
    id: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def extra_of(tracker: str) -> Extra:
    """The extra that a tracker of `TRACKERS` needs."""
    return Extra(tracker, (tracker,))


def configuration_of(about: Mapping[str, Any]) -> dict[str, Any]:
    """The part of NAME.run.json that a tracker receives as the run's configuration."""
    return {key: about[key] for key in _CONFIG if about.get(key) is not None}


def project_of(tracker: str, asked: str | None) -> str:
    """The project: the requested one, or the value of the tracker's own variable, or `gymmesh`."""
    return asked or os.environ.get(_PROJECT_IN[tracker]) or DEFAULT_PROJECT
