"""The summary of a run: a tally that takes one outcome at a time, and its rendering. Pure."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from gymmesh_client.boundaries import boundary_name
from gymmesh_client.means import SCALE, mean_of
from gymmesh_client.replacing import write_whole
from gymmesh_runtime.text import one_line, shortened

if TYPE_CHECKING:
    from pathlib import Path

    from gymmesh_client.output_files import OutputFiles

SOLVED: Final = 1.0
"""A rollout counts as a success for pass@k when its reward is at least this."""

_MAX_BARS: Final = 10
_EXPLAINED: Final = 3  # verdicts
_MOST_CAUSES: Final = 12
_LONGEST_CAUSE: Final = 100
_LONGEST_MESSAGE: Final = 1000


def pass_at_k(counts: Iterable[tuple[int, int]], k: int) -> float | None:
    """The unbiased estimate of the chance that at least one of `k` rollouts succeeds.

    The mean over tasks of 1 - C(n-c, k) / C(n, k), after M. Chen et al., "Evaluating Large
    Language Models Trained on Code", arXiv:2107.03374, section 2.1.

    Args:
        counts: for each task, n verified rollouts and c successes among them. Tasks with fewer
            than `k` verified rollouts are left out, since the estimate has no value for them.
        k: at least 1.

    Returns:
        A number from 0 to 1; None when no task has `k` verified rollouts.
    """
    if k < 1:
        raise ValueError("k must be at least 1")
    chances = [1.0 - math.comb(n - c, k) / math.comb(n, k) for n, c in counts if n >= k]
    return math.fsum(chances) / len(chances) if chances else None


class JudgedBy(NamedTuple):
    """Who gave a verdict, so that verdicts of several versions are seen."""

    name: str  # the environment's, and that of its verifier where it has another
    version: str  # of the verifier; empty where it is not known


def judged_by(environment: str, verifier: str, version: str, compat: str) -> JudgedBy:
    """Who gave a verdict.

    Which reference's verdicts they are (`compat`), a task may choose: that makes no other version.
    """
    if compat:
        version = version.removesuffix(f"+{compat}")
    own = verifier in ("", environment)
    return JudgedBy(environment if own else f"{environment}/{verifier}", version)


def judge_of(environment: object, verdict: Mapping[str, Any]) -> JudgedBy:
    """Who gave a row's `verification`."""
    said = [str(verdict.get(key) or "") for key in ("verifier", "version", "compat")]
    return judged_by(str(environment), *said)


class Counted(msgspec.Struct, frozen=True, gc=False):
    """What a tally takes from a completed rollout's row, which need not be kept for it."""

    task_id: str
    stop_reason: str
    status: str  # of the verification
    reward: float | None
    input_tokens: int
    output_tokens: int
    model_calls: int = 0
    model_queue_us: int = 0  # that its model calls waited for a place; rows do not hold it
    judge: JudgedBy = JudgedBy("", "")
    explanation: str = ""  # of the verdict
    endpoint_us: int = 0  # that its model calls were at endpoints
    model_retries: Mapping[str, int] = {}  # model calls that were sent again, by reason


def counted(row: Mapping[str, Any]) -> Counted:
    """What there is to count of a row, which an earlier version may have written."""
    usage = (row.get("response") or {}).get("usage") or {}
    retries = Counter[str]()
    endpoint_us = 0
    for call in row.get("calls") or ():
        endpoint_us += (call.get("timings") or {}).get("endpoint_us") or 0
        for one in call.get("retries") or ():
            retries[one["reason"]] += one["count"]
    if "calls" not in row:  # an earlier version had them in `metadata`
        for call in (row.get("metadata") or {}).get("model_calls") or ():
            endpoint_us += call.get("endpoint_us") or 0
            retries.update(call.get("retries") or {})
    reward, verdict = row.get("reward"), row.get("verification") or {}
    return Counted(
        str(row.get("task_id")),
        str(row.get("stop_reason")),
        str(verdict.get("status")),
        None if reward is None else float(reward),
        usage.get("input_tokens") or 0,
        usage.get("output_tokens") or 0,
        judge=judge_of(row.get("environment"), verdict),
        explanation=str(verdict.get("explanation") or ""),
        endpoint_us=endpoint_us,
        model_retries=dict(retries),
    )


def mixed_versions(verdicts: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """For each judge with verdicts of several versions: its name, and how many of each."""
    for judge, counts in sorted(verdicts.items()):
        if len(counts) > 1:
            each = [f"{count} of version {version}" for version, count in sorted(counts.items())]
            yield f"{judge}: {', '.join(each)}"


@dataclass(slots=True)
class Tally:
    """What has come of a run so far.

    Its size grows with the number of tasks, not of rollouts.
    """

    completed: int = 0
    kept: int = 0
    kept_failed: int = 0
    put_back: int = 0
    # Plain, as each rollout counts in them: a Counter takes several times as long.
    rewards: dict[float, int] = field(default_factory=dict)
    unjudged: Counter[str] = field(default_factory=Counter)
    model_retries: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    stop_reasons: dict[str, int] = field(default_factory=dict)
    input_tokens: int = 0
    output_tokens: int = 0
    new_output_tokens: int = 0
    model_calls: int = 0
    model_queue_us: int = 0
    endpoint_us: int = 0
    first_failure: str = ""
    explained: list[str] = field(default_factory=list)  # the first rewards that are not positive
    per_task: dict[str, list[int]] = field(default_factory=dict)
    # By `JudgedBy.name` how many rewards each of its versions gave.
    verdicts: dict[str, dict[str, int]] = field(default_factory=dict)

    def add_row(self, row: Mapping[str, Any], *, kept: bool = False) -> None:
        """Count a completed rollout's row; `kept` when an earlier run wrote it."""
        self.add(counted(row), kept=kept)

    def add(self, one: Counted, *, kept: bool = False) -> None:
        """Count what there is to count of a row, as `add_row`."""
        self.completed += 1
        reasons, reason = self.stop_reasons, one.stop_reason
        reasons[reason] = reasons.get(reason, 0) + 1
        self.input_tokens += one.input_tokens
        self.output_tokens += one.output_tokens
        self.model_calls += one.model_calls
        self.model_queue_us += one.model_queue_us
        if one.model_retries:
            self.model_retries.update(one.model_retries)
        if kept:
            self.kept += 1
        else:
            self.endpoint_us += one.endpoint_us
            self.new_output_tokens += one.output_tokens
        if one.reward is None:
            self.unjudged[one.status] += 1
            return
        judge, version = one.judge
        if version:
            versions = self.verdicts.setdefault(judge, {})
            versions[version] = versions.get(version, 0) + 1
        # Rewards of a continuous kind would otherwise fill the counter without bound. One that is
        # in it is round already, and rounding costs more than all the rest.
        rewards, reward = self.rewards, one.reward
        value = reward if reward in rewards else round(reward, 3)
        rewards[value] = rewards.get(value, 0) + 1
        counts = self.per_task.get(one.task_id)
        if counts is None:
            counts = self.per_task[one.task_id] = [0, 0]
        counts[0] += 1
        if reward >= SOLVED:
            counts[1] += 1
        elif reward <= 0 and one.explanation and len(self.explained) < _EXPLAINED:
            self.explained.append(f"{one.task_id}: {reward:g}, {one.explanation}")

    def add_failure(self, row: Mapping[str, Any], *, kept: bool = False) -> None:
        """Count a failed rollout's row; `kept` when an earlier run wrote it."""
        self.kept_failed += kept
        failure = row["failure"]
        status = failure["status"]
        self.add_cause(str(failure["boundary"]), status["reason"], status["message"])

    def add_cause(self, boundary: str, reason: str, message: str) -> None:
        """Count a failed rollout, by its boundary, and its status's reason and message."""
        self.failures[boundary] += 1
        cause = shortened(f"{boundary} {reason}".rstrip(), _LONGEST_CAUSE)
        self.causes[cause] += 1
        if not self.first_failure:
            self.first_failure = shortened(f"{cause}: {message}", _LONGEST_MESSAGE)

    def add_retry(self, boundary: int, reason: str) -> None:
        """Count an attempt that failed and is followed by another one."""
        name = boundary_name(boundary)
        self.retries[shortened(f"{name} {reason}".rstrip(), _LONGEST_CAUSE)] += 1

    @property
    def retried(self) -> int:
        """How many attempts failed and were followed by another one."""
        return self.retries.total()

    @property
    def failed(self) -> int:
        """How many rollouts failed."""
        return self.failures.total()

    @property
    def mean_reward(self) -> float | None:
        """Over verified rollouts; None when there is none."""
        return mean_of(self.rewards.items())


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The figures of a run. Rates count what this run did, all else also what it kept.

    Attributes:
        wall_s: seconds from the first rollout to the last.
        requested: rollouts asked for; what is neither completed nor failed did not finish.
        pass_at: pass@k by k; pass_at_tasks: over how many tasks each is estimated.
        tasks: of the run; 0: not known.
        run_id: the run's id.
        why: why it ended before every rollout had an outcome; empty when it did not.
        concurrency: the most in flight, as last asked for.
        groups: of groups handed to a trainer; None where none were.
        skipped: rows of the task file that were left out.
        skipped_output: the file that says which and why.
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
        """How long a model call waited for a place, in the mean; None without a call."""
        calls = self.tally.model_calls
        return round(self.tally.model_queue_us / calls / 1e6, 6) if calls else None

    @property
    def model_calls_at_a_time(self) -> float | None:
        """How many model calls were at endpoints, in the mean; None where it is not known."""
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
            "verdicts": {
                name: dict(sorted(of.items())) for name, of in sorted(tally.verdicts.items())
            },
            "pass_at": {str(k): value for k, value in self.pass_at.items()},
            "pass_at_tasks": {str(k): count for k, count in self.pass_at_tasks.items()},
            "rewards": [{"reward": r, "count": n} for r, n in sorted(tally.rewards.items())],
            "stop_reasons": dict(sorted(tally.stop_reasons.items())),
            "failures": dict(sorted(tally.failures.items())),
            "causes": dict(sorted(tally.causes.items())),
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
    **more: Any,
) -> RunSummary:
    """The summary of a run with `repeats` rollouts per task."""
    counts = [(n, c) for n, c in tally.per_task.values()]
    pass_at, over = pass_at_each(counts, repeats), tasks_at_each(counts, repeats)
    return RunSummary(
        requested,
        wall_s,
        tally,
        pass_at,
        output,
        failures_output,
        tasks=requested // max(1, repeats),
        pass_at_tasks=over,
        **more,
    )


def counts_of(tally: Tally) -> dict[str, Any]:
    """What NAME.run.json says of a run's outcomes."""
    return {
        "completed": tally.completed,
        "failed": tally.failed,
        "verified": sum(tally.rewards.values()),
        "unjudged": dict(sorted(tally.unjudged.items())),
        "mean_reward": tally.mean_reward,
        "stop_reasons": dict(sorted(tally.stop_reasons.items())),
        "failures": dict(sorted(tally.failures.items())),
        "input_tokens": tally.input_tokens,
        "output_tokens": tally.output_tokens,
    }


def pass_at_each(counts: Collection[tuple[int, int]], repeats: int) -> dict[int, float]:
    """pass@k for k = 1, 2, 4 … and `repeats`, as far as there is one; `counts` as `pass_at_k`."""
    chances = {k: pass_at_k(counts, k) for k in _each_k(repeats)}
    return {k: chance for k, chance in chances.items() if chance is not None}


def tasks_at_each(counts: Collection[tuple[int, int]], repeats: int) -> dict[int, int]:
    """Over how many tasks pass@k is estimated, for each k of `pass_at_each`."""
    found = {k: sum(n >= k for n, _ in counts) for k in _each_k(repeats)}
    return {k: tasks for k, tasks in found.items() if tasks}


def _each_k(repeats: int) -> list[int]:
    powers = [2**power for power in range(repeats.bit_length()) if 2**power <= repeats]
    return sorted({*powers, repeats})


def summary_path(files: OutputFiles) -> Path:
    """Where a run's summary is kept: NAME.summary.json beside its rows."""
    return files.summary


def write_summary(path: Path, summary: RunSummary) -> None:
    """Keep a summary in a file, whole or not at all. Raises OSError."""
    write_whole(path, json.dumps(summary.to_dict(), indent=2) + "\n")


def _model_lines(summary: RunSummary) -> Iterator[str]:
    """How many model calls were at the endpoints, of how many asked for, and what held them up."""
    tally, had = summary.tally, summary.model_calls_at_a_time
    if not tally.model_retries:
        return
    again = f"{tally.model_retries.total()} sent again: {_counted(tally.model_retries)}"
    if had is not None and tally.model_calls:
        wait = (summary.model_queue_s or 0.0) * 1000
        again = (
            f"{tally.model_calls}, {had:g} at a time of {summary.concurrency} rollouts asked for; "
            f"each waited {wait:.0f} ms for a place; {again}"
        )
    yield f"model calls   {again}"


def histogram(rewards: Mapping[float, int]) -> list[tuple[str, int]]:
    """Bars of a reward histogram: one for each value, or ten equal ranges when there are more."""
    if not rewards:
        return []
    if len(rewards) <= _MAX_BARS:
        return [(f"{value:g}", rewards[value]) for value in sorted(rewards)]
    # The difference of two rewards may exceed what a float can hold.
    scale = 1.0 if math.isfinite(max(rewards) - min(rewards)) else SCALE
    low, high = min(rewards) * scale, max(rewards) * scale
    width = (high - low) / _MAX_BARS
    bars = [0] * _MAX_BARS
    for value, count in rewards.items():
        bars[min(int((value * scale - low) / width), _MAX_BARS - 1)] += count
    ends = [(low + place * width) / scale for place in range(_MAX_BARS + 1)]
    return [
        (f"{ends[place]:.3g} … {ends[place + 1]:.3g}", count) for place, count in enumerate(bars)
    ]


def render(summary: RunSummary, again: str = "") -> str:
    """The summary as text for people, a few lines; `again`: the command that goes on."""
    tally, mean = summary.tally, summary.tally.mean_reward
    kept = f" ({tally.kept} of them kept from an earlier run)" if tally.kept else ""
    retried = f", {tally.retried} retried" if tally.retried else ""
    failed = f" ({tally.kept_failed} of them in an earlier run)" if tally.kept_failed else ""
    lines = [
        f"rollouts      {tally.completed} completed{kept}, {tally.failed} failed{failed}{retried}"
        f", of {summary.requested} asked for",
        f"speed         {summary.rollouts_per_s:.2f} rollouts/s over {summary.wall_s:.1f} s",
        f"mean reward   {'none was verified' if mean is None else f'{mean:.3f}'}",
    ]
    for k, chance in summary.pass_at.items():
        over = summary.pass_at_tasks.get(k, summary.tasks)
        partly = f" over {over} of {summary.tasks} tasks" if over < summary.tasks else ""
        lines.append(f"{f'pass@{k}':<13} {chance:.3f}{partly}")
    lines += bars("rewards", histogram(tally.rewards))
    lines += [
        f"{'explained' if not place else '':<13} {line}"
        for place, line in enumerate(tally.explained)
    ]
    if tally.unjudged:
        lines.append(f"unjudged      {_counted(tally.unjudged)}")
    lines += [f"mixed         verdicts of {one}" for one in mixed_versions(tally.verdicts)]
    if tally.failures:
        lines.append(f"failures      {_counted(tally.causes)}")
    if tally.retries:
        lines.append(f"retries       {_counted(tally.retries)}")
    lines += _model_lines(summary)
    lines.append(f"tokens        {tally.input_tokens} in, {tally.output_tokens} out")
    lines.append(f"rows          {summary.output}")
    if tally.failures:
        lines.append(f"failed        {summary.failures_output}")
    if summary.skipped:
        rows = "1 row" if summary.skipped == 1 else f"{summary.skipped} rows"
        lines.append(f"skipped       {rows} of the task file: {summary.skipped_output}")
    if summary.not_finished > 0:
        lines.append(f"not finished  {summary.not_finished}; go on with --resume")
    if again:
        lines.append(f"try again     {again}")
    elif tally.failed:
        lines.append("try again     with --resume --retry failed")
    return "\n".join(map(one_line, lines))


def bars(title: str, counts: Sequence[tuple[str, int]]) -> Iterator[str]:
    """A picture of counts in lines of text; nothing where there are none."""
    most = max((count for _, count in counts), default=0)
    if not most:
        return
    yield title
    wide = max(len(label) for label, _ in counts)
    for label, count in counts:
        bar = "█" * max(1 if count else 0, round(24 * count / most))
        yield f"  {label:>{wide}}  {bar} {count}"


def _counted(counts: Mapping[str, int]) -> str:
    shown = sorted(sorted(counts.items(), key=lambda one: -one[1])[:_MOST_CAUSES])
    text = ", ".join(f"{count} {name}" for name, count in shown)
    more = len(counts) - len(shown)
    return f"{text} and {more} other causes" if more else text
