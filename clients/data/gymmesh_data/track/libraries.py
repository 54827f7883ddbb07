"""One class for each tracker, each over the tracker's own library; used in its process only.

Each class has one run at the tracker, and four methods. The methods may raise the library's errors:

begin     begins or resumes a run; returns its `id`, and its `url` if there is one
measures  logs measures; `step`: the number of rollouts with an outcome
table     logs a table of samples; replaces the previous table if the tracker can
end       ends the run, with its current configuration (empty: unchanged)
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from gymmesh_data.track.measures import plain_name
from gymmesh_data.track.names import TrackerRun

_STEP: Final = "rollouts/finished"
_SAMPLES: Final = "samples"
# MLflow's bounds.
_BATCH: Final = 100
_LONGEST_KEY: Final = 250
_LONGEST_VALUE: Final = 500


class WandbTracker:
    """Weights & Biases."""

    def begin(self, run: TrackerRun) -> dict[str, str]:
        """What W&B would read of the machine by itself stays out: git remotes and command lines may
        have credentials in them.
        """
        import wandb

        self._library = wandb
        settings = wandb.Settings(
            console="off",
            disable_code=True,
            disable_git=True,
            x_disable_meta=True,
            x_disable_stats=True,
        )
        self._run = wandb.init(
            project=run.project,
            name=run.name,
            group=run.group,
            config=run.config,
            id=run.id or None,
            resume="allow" if run.id else None,
            job_type=run.kind,
            settings=settings,
        )
        # Steps of W&B's own must grow, and the rollouts of a resumed run may be fewer.
        self._run.define_metric(_STEP, hidden=True)
        self._run.define_metric("*", step_metric=_STEP)
        return {"id": self._run.id, "url": self._run.url or ""}

    def measures(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({_STEP: step, **values})

    def table(self, step: int, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        table = self._library.Table(columns=list(columns), data=[list(row) for row in rows])
        self._run.log({_STEP: step, _SAMPLES: table})

    def end(self, config: Mapping[str, Any], *, finished: bool) -> None:
        if config:
            self._run.config.update(dict(config), allow_val_change=True)
        self._run.finish(exit_code=0 if finished else 1)


class MlflowTracker:
    """MLflow. Its parameters can't be changed, so the whole configuration is an artifact, too."""

    def begin(self, run: TrackerRun) -> dict[str, str]:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self._metric, self._param = Metric, Param
        self._client = MlflowClient()
        if run.id:
            self._id = self._client.get_run(run.id).info.run_id
            self._client.update_run(self._id, status="RUNNING")
        else:
            experiment = self._client.get_experiment_by_name(run.project)
            where = experiment.experiment_id if experiment else self._made(run.project)
            tags = {"gymmesh.run_id": run.group}
            made = self._client.create_run(where, tags=tags, run_name=run.name)
            self._id = made.info.run_id
        self._configure(run.config)
        return {"id": self._id}

    def measures(self, step: int, values: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        self._log("metrics", [self._metric(*one, now, step) for one in values.items()])

    def table(self, step: int, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        # As MlflowClient.log_table writes and load_table reads it, without pandas.
        path = f"{_SAMPLES}.json"
        table = {"columns": list(columns), "data": [list(row) for row in rows]}
        self._client.log_dict(self._id, table, path)
        tables = json.dumps([{"path": path, "type": "table"}])
        self._client.set_tag(self._id, "mlflow.loggedArtifacts", tables)

    def end(self, config: Mapping[str, Any], *, finished: bool) -> None:
        if config:
            self._configure(config)
        self._client.set_terminated(self._id, "FINISHED" if finished else "KILLED")

    def _made(self, project: str) -> str:
        from mlflow.exceptions import MlflowException

        try:
            made: str = self._client.create_experiment(project)
        except MlflowException:  # another collector made it meanwhile
            experiment = self._client.get_experiment_by_name(project)
            if experiment is None:
                raise
            made = experiment.experiment_id
        return made

    def _configure(self, config: Mapping[str, Any]) -> None:
        known = self._client.get_run(self._id).data.params
        values = {key[:_LONGEST_KEY]: value[:_LONGEST_VALUE] for key, value in flat(config)}
        new = [self._param(key, value) for key, value in values.items() if key not in known]
        self._log("params", new)
        self._client.log_dict(self._id, dict(config), "run.json")

    def _log(self, kind: str, found: list[Any]) -> None:
        for start in range(0, len(found), _BATCH):
            self._client.log_batch(self._id, **{kind: found[start : start + _BATCH]})


class TrackioTracker:
    """Trackio. Its runs are known by project and name."""

    def begin(self, run: TrackerRun) -> dict[str, str]:
        import trackio

        self._library = trackio
        name = run.id or run.name
        # What the variables TRACKIO_SPACE_ID and TRACKIO_SERVER_URL name is Trackio's to read.
        trackio.init(
            project=run.project,
            name=name,
            group=run.group,
            config=dict(run.config),
            resume="must" if run.id else "never",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        return {"id": name}

    def measures(self, step: int, values: Mapping[str, float]) -> None:
        self._library.log(dict(values), step=step)

    def table(self, step: int, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        table = self._library.Table(columns=list(columns), data=[list(row) for row in rows])
        self._library.log({_SAMPLES: table}, step=step)

    def end(self, config: Mapping[str, Any], *, finished: bool) -> None:
        self._library.finish()


Tracker: TypeAlias = MlflowTracker | TrackioTracker | WandbTracker


def tracker_of(name: str) -> Tracker:
    """The tracker of this name; see `names.TRACKERS`."""
    trackers: dict[str, type[Tracker]] = {
        "mlflow": MlflowTracker,
        "trackio": TrackioTracker,
        "wandb": WandbTracker,
    }
    return trackers[name]()


def flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """JSON values as pairs of a path and a text: what is within objects on its own, lists whole."""
    if isinstance(value, Mapping) and (value or not path):
        for key, member in value.items():
            name = plain_name(key)
            yield from flat(member, f"{path}.{name}" if path else name)
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)
