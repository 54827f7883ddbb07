"""A profile at a tracker: a separate run at the tracker, in the group of the collector's run.

A figure with the same meaning as in an active run has the same name (measures.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gymmesh_client import OutputFiles
from gymmesh_client.run_file import read_run_file
from gymmesh_data.track.link import TrackerLink
from gymmesh_data.track.measures import counted, most_of, plain_name
from gymmesh_data.track.names import TrackerRun, configuration_of, project_of
from gymmesh_data.track.samples import COLUMNS, Reservoir, TableRow, sample_of_rollout

if TYPE_CHECKING:
    from gymmesh_data.profile import Figure, Profile
    from gymmesh_data.rollout import StoredRollout

_OPTIONS: Final = ("solved_at", "confidence", "resamples", "seed")


class ProfileTracking:
    """Sends a profile to a tracker.

    Args:
        project: the tracker's project; None: see `names.project_of`.
        samples: the maximum number of rollouts in a table; 0: no table.
    """

    def __init__(self, link: TrackerLink, *, project: str | None = None, samples: int = 32) -> None:
        self.link = link
        self._project = project_of(link.tracker, project)
        self._samples: Reservoir[TableRow] = Reservoir(samples)

    def see(self, rollout: StoredRollout) -> None:
        """Offer a rollout that the profile reads for the table."""
        place = self._samples.place()
        if place is not None:
            self._samples.put(place, sample_of_rollout(rollout))

    async def send(self, made: Profile, on_begun: Callable[[dict[str, Any]], None]) -> None:
        """Send the profile. Errors of the tracker do not raise.

        `on_begun` is called with the tracker's `id` and `url` of the run.
        """
        link, told = self.link, made.rollouts()
        run = profile_run(made, self._project, datetime.now(UTC))
        await link.begin(run, on_begun)
        step = told["completed"] + told["failed"]
        link.measures(step, profile_measures(made))
        if self._samples.kept:
            link.table(step, COLUMNS, self._samples.kept)
        await link.end(run.config, finished=True)

    @property
    def lost(self) -> str:
        """A sentence on lost messages; empty if all arrived."""
        return f"{self.link.tracker}: {self.link.loss}" if self.link.loss else ""


def profile_run(made: Profile, project: str, now: datetime) -> TrackerRun:
    """The profile as a run: in the group of the profiled run, with that run's configuration.

    A profile of several runs, or of files without a run, is in a group with the name of the first
    file.
    """
    files = OutputFiles(Path(made.inputs[0]))
    about = read_run_file(files.run) if len(made.inputs) == 1 else {}
    group = str(about.get("run_id") or files.stem)
    asked: dict[str, Any] = {"inputs": list(made.inputs)}
    asked |= {key: getattr(made.options, key) for key in _OPTIONS}
    name = f"{group}-profile-{now:%Y%m%d-%H%M%S}"
    config = configuration_of(about) | {"profile": asked}
    return TrackerRun(project, name, group, config, kind="profile")


def profile_measures(made: Profile) -> dict[str, float]:
    """The measures of a profile. Pure."""
    told, totals = made.rollouts(), made.totals
    found: dict[str, float] = {f"rollouts/{name}": count for name, count in told.items()}
    found |= _figure("reward/mean", made.mean)
    if made.median is not None:
        found["reward/median"] = made.median[0]
    if told["judged"]:
        solved = sum(task.solved for task in totals.tasks.values())
        found["pass_rate/mean"] = solved / told["judged"]
    for name, by_k in made.estimates.items():
        for k, figure in by_k.items():
            found |= _figure(f"{name}/{k}", figure)
    found["tasks/all"] = len(totals.tasks)
    found |= {f"tasks/{name}": count for name, count in made.bands.items()}
    found |= _lengths(made)
    found |= _counts(made)
    found |= {f"health/{warning.name}": 1 for warning in made.warnings}
    return found


def _figure(name: str, figure: Figure | None) -> dict[str, float]:
    """A figure, and the ends of its interval where it has one."""
    if figure is None:
        return {}
    found = {name: figure.value}
    if figure.interval is not None:
        found[f"{name}_low"], found[f"{name}_high"] = figure.interval
    return found


def _lengths(made: Profile) -> dict[str, float]:
    totals = made.totals
    found: dict[str, float] = {f"tokens/{name}": d.total for name, d in totals.tokens.items()}
    output = totals.tokens.get("output")
    for name, one in (("length/output_tokens", output), ("length/model_calls", totals.steps)):
        if one is not None and one.mean is not None:
            found |= {name: one.mean, f"{name}_max": one.greatest}
    for kind, named, unit in (
        ("latency", totals.latency, "_s"),
        ("components", totals.components, ""),
    ):
        for name, _ in most_of((name, d.count) for name, d in named.items()):
            mean = named[name].mean
            if mean is not None:
                found[f"{kind}/{plain_name(name)}{unit}"] = mean
    return found


def _counts(made: Profile) -> dict[str, float]:
    """What is counted by names, as while a run goes on."""
    totals = made.totals
    boundaries, causes = Counter[str](), Counter[str]()
    for (boundary, reason, _), count in totals.failures.items():
        boundaries[boundary] += count
        causes[f"{boundary} {reason}".rstrip()] += count
    return counted(
        {
            "failures": boundaries,
            "causes": causes,
            "stop_reasons": totals.stop_reasons,
            "unjudged": totals.unjudged,
        }
    )
