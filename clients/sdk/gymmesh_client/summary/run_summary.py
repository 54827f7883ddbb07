"""The figures of a run, and the file that keeps them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gymmesh_client.safe_writes import write_whole
from gymmesh_client.summary.pass_at_k import pass_at_each, tasks_at_each
from gymmesh_client.summary.tally import Tally

if TYPE_CHECKING:
    from pathlib import Path

    from gymmesh_client.output_files import OutputFiles


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The figures of a run. Rates count only this session; all other figures include kept rollouts.

    Attributes:
        wall_s: seconds from the first rollout to the last.
        requested: requested rollouts; those neither completed nor failed did not finish.
        pass_at: pass@k by k.
        pass_at_tasks: for each k, the number of tasks from which pass@k is estimated.
        tasks: the number of tasks of the run; 0: not known.
        run_id: the run's id.
        why: why it ended before every rollout had an outcome; empty if it did not.
        concurrency: the last requested limit of running rollouts.
        groups: counts of the groups sent to a trainer; None: groups were not sent.
        skipped: rows of the task file that were skipped.
        skipped_output: the file with the skipped rows and the reasons.
    """

    requested: int
    wall_s: float
    tally: Tally
    pass_at: dict[int, float]
    output: str
    failures_output: str
    run_id: str = ""
    why: str = ""
    concurrency: int = 0
    groups: Mapping[str, int] | None = None
    skipped: int = 0
    skipped_output: str = ""
    tasks: int = 0
    pass_at_tasks: Mapping[int, int] = field(default_factory=dict)

    @property
    def not_finished(self) -> int:
        """Rollouts without an outcome, after an interruption."""
        return self.requested - self.tally.completed - self.tally.failed

    @property
    def rollouts_per_s(self) -> float:
        """Rollouts with an outcome in this run, per second."""
        kept = self.tally.kept + self.tally.kept_failed
        done = self.tally.completed + self.tally.failed - kept
        return done / self.wall_s if self.wall_s > 0 else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Output tokens of completed rollouts of this run, per second."""
        return self.tally.new_output_tokens / self.wall_s if self.wall_s > 0 else 0.0

    @property
    def model_queue_s(self) -> float | None:
        """Mean seconds that a model call waited for a slot; None without a call."""
        calls = self.tally.model_calls
        return round(self.tally.model_queue_us / calls / 1e6, 6) if calls else None

    @property
    def model_calls_at_a_time(self) -> float | None:
        """Mean number of concurrent model calls at endpoints; None if unknown."""
        spent = self.tally.endpoint_us
        return round(spent / 1e6 / self.wall_s, 2) if spent and self.wall_s > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON values."""
        tally = self.tally
        return {
            "run_id": self.run_id,
            "requested": self.requested,
            "completed": tally.completed,
            "kept_from_earlier": tally.kept,
            "failed": tally.failed,
            "failed_earlier": tally.kept_failed,
            "not_finished": self.not_finished,
            "ended_early": self.why if self.not_finished else "",
            "retried": tally.retried,
            "retries": dict(sorted(tally.retries.items())),
            "put_back": tally.put_back,
            "concurrency": self.concurrency,
            "wall_s": round(self.wall_s, 3),
            "rollouts_per_s": round(self.rollouts_per_s, 3),
            "output_tokens_per_s": round(self.tokens_per_s, 1),
            "model_queue_s": self.model_queue_s,
            "model_calls_at_a_time": self.model_calls_at_a_time,
            "model_retries": dict(sorted(tally.model_retries.items())),
            "mean_reward": tally.mean_reward,
            "verified": sum(tally.rewards.values()),
            "unjudged": dict(sorted(tally.unjudged.items())),
            "group_faults": dict(sorted(tally.group_faults.items())),
            "verdicts": {
                name: dict(sorted(of.items())) for name, of in sorted(tally.verdicts.items())
            },
            "pass_at": {str(k): value for k, value in self.pass_at.items()},
            "pass_at_tasks": {str(k): count for k, count in self.pass_at_tasks.items()},
            "rewards": [{"reward": r, "count": n} for r, n in sorted(tally.rewards.items())],
            "stop_reasons": dict(sorted(tally.stop_reasons.items())),
            "failures": dict(sorted(tally.failures.items())),
            "causes": dict(sorted(tally.causes.items())),
            "states_not_kept": dict(sorted(tally.states_omitted.items())),
            "input_tokens": tally.input_tokens,
            "output_tokens": tally.output_tokens,
            "groups": None if self.groups is None else dict(self.groups),
            "output": self.output,
            "failures_output": self.failures_output if tally.failed else None,
            "skipped": self.skipped,
            "skipped_output": self.skipped_output if self.skipped else None,
        }


def summarize(
    tally: Tally,
    *,
    requested: int,
    wall_s: float,
    repeats: int,
    output: str,
    failures_output: str,
    tasks: int | None = None,
    **more: Any,
) -> RunSummary:
    """The summary of a run with `repeats` rollouts per task. `tasks`: the number of the run's
    tasks, if an earlier session had other repeats or other tasks.
    """
    counts = [(n, c) for n, c in tally.per_task.values()]
    pass_at, over = pass_at_each(counts, repeats), tasks_at_each(counts, repeats)
    return RunSummary(
        requested,
        wall_s,
        tally,
        pass_at,
        output,
        failures_output,
        tasks=requested // max(1, repeats) if tasks is None else tasks,
        pass_at_tasks=over,
        **more,
    )


def summary_path(files: OutputFiles) -> Path:
    """Where a run's summary is kept: NAME.summary.json beside its rows."""
    return files.summary


def write_summary(path: Path, summary: RunSummary) -> None:
    """Keep a summary in a file, whole or not at all. Raises OSError."""
    write_whole(path, json.dumps(summary.to_dict(), indent=2) + "\n")
