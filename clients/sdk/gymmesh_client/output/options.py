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
    """How a run's output is opened; by default as a new run where there is none.

    Attributes:
        overwrite: replace a run that is there.
        resume: keep the run that is there, and its outcomes.
        accept: what may have changed since, keys of `gymmesh_client.run_file.identity.CHANGES`.
        retry: outcomes to give up on when the run is resumed, so that those rollouts run again.
        retry_of: the tasks that are asked for, with so many repeats each; outcomes of other
            rollouts would be given up and not come again, so they stay. None: all may be given up.
        repeats: rollouts per task.
        skipped: why rows of the task file were left out; kept beside the run.
        inputs: the files that the run reads, by what they are to the user, such as `--input`.
        run_id: the run's id, as `is_run_id` has it; empty: one that is made up, or that of the run
            that is resumed.
        shard: which part of the run it is; None: all of it.
        tasks: of a shard: how many tasks all shards have together.
        asked: what the run was asked for, kept for a resumption, without secrets; empty: what an
            earlier session kept.
        trace: whether to keep every event.
        delay_s: the most seconds that an outcome waits for others to share its commit.
    """

    overwrite: bool = False
    resume: bool = False
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
