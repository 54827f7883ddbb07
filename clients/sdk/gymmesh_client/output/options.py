"""How a run's output is opened."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gymmesh_client.journal import COMMIT_DELAY_S
from gymmesh_client.output.retry_choice import RetryChoice
from gymmesh_client.problems import TaskProblem
from gymmesh_client.tasks import Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOptions:
    """How to open a run's output. Default: a new run, which must not exist yet.

    Attributes:
        overwrite: replace an existing run.
        resume: resume the existing run and keep its outcomes.
        can_resume: whether the user's command has the option --resume, for messages.
        in_python: whether a program sets the options of a collector, which messages then name in
            place of the options of `gym-cli collect`. A collector has no option to overwrite.
        accept: what may have changed since the run started, keys of
            `gymmesh_client.run_file.identity.CHANGES`.
        retry: outcomes to discard when the run is resumed, so that those rollouts run again.
        retry_of: the requested tasks, with their number of repeats. Outcomes of other rollouts
            would not be replaced, so they are kept. None: any outcome may be discarded.
        repeats: rollouts per task.
        skipped: why rows of the task file were skipped; kept beside the run.
        inputs: the files that the run reads, by the user's name for each, such as `--input`.
        run_id: the run's id (see `is_run_id`); empty: generated, or the id of the resumed run.
        shard: which part of the run it is; None: the whole run.
        tasks: for a shard: the number of tasks of all shards together.
        asked: the run's arguments without secrets, kept to resume it; empty: those of an earlier
            session stay. A command with arguments resumes only runs that have some.
        trace: whether to keep every event.
        delay_s: the maximum seconds that an outcome waits for others to share its commit.
    """

    overwrite: bool = False
    resume: bool = False
    can_resume: bool = True
    in_python: bool = False
    accept: Collection[str] = ()
    retry: RetryChoice | None = None
    retry_of: Collection[str] | None = None
    repeats: int = 1
    skipped: Sequence[TaskProblem] = ()
    inputs: Mapping[str, Iterable[Path]] = field(default_factory=dict)
    run_id: str = ""
    shard: Shard | None = None
    tasks: int = 0
    asked: Mapping[str, Any] = field(default_factory=dict)
    trace: bool = False
    delay_s: float = COMMIT_DELAY_S
