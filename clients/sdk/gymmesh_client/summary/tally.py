"""A tally of a run, which takes one outcome at a time. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from gymmesh_client.boundaries import boundary_name
from gymmesh_client.group_faults import group_fault
from gymmesh_client.means import mean_of
from gymmesh_client.summary.pass_at_k import SOLVED
from gymmesh_client.summary.tokens import tokens_of
from gymmesh_runtime.text import shortened

_EXPLAINED: Final = 3  # verdicts
_DIGEST: Final = 8  # characters
_LONGEST_CAUSE: Final = 100
_LONGEST_MESSAGE: Final = 1000


class JudgedBy(NamedTuple):
    """Who gave a verdict, so that verdicts of several versions are seen."""

    name: str  # the environment's, and that of its verifier where it has another
    version: str  # of the verifier; empty where it is not known


def judged_by(environment: str, verifier: str, version: str, compat: str) -> JudgedBy:
    """Who gave a verdict.

    A task may choose the reference of its verdicts (`compat`); this does not count as a different
    version.
    """
    if compat:
        version = version.removesuffix(f"+{compat}")
    own = verifier in ("", environment)
    return JudgedBy(environment if own else f"{environment}/{verifier}", version)


def judge_of(environment: object, verdict: Mapping[str, Any]) -> JudgedBy:
    """Who gave a row's `verification`.

    Another verifier of `gym-cli reverify` has its name and digest in its version, such as
    `1+stricter.py:judge@1a2b3c4d`: the version alone may be that of the verifier before.
    """
    said = [str(verdict.get(key) or "") for key in ("verifier", "version", "compat")]
    judge, again = judged_by(str(environment), *said), verdict.get("reverified")
    if not isinstance(again, dict) or not again.get("verifier"):
        return judge
    own = str(again["verifier"]).rpartition("/")[2]
    digest = str(again.get("verifier_digest") or "")[:_DIGEST]
    return judge._replace(version=f"{judge.version}+{own}" + (f"@{digest}" if digest else ""))


class Counted(msgspec.Struct, frozen=True, gc=False):
    """What a tally takes from a completed rollout's row, which need not be kept for it."""

    task_id: str
    stop_reason: str
    status: str  # of the verification
    reward: float | None
    input_tokens: int  # of all its agent's model calls
    output_tokens: int
    model_calls: int = 0
    model_queue_us: int = 0  # that its model calls waited for a place; rows do not hold it
    judge: JudgedBy = JudgedBy("", "")
    explanation: str = ""  # of the verdict
    endpoint_us: int = 0  # that its model calls were at endpoints
    model_retries: Mapping[str, int] = {}  # retries of its model calls, by reason
    state_omitted: str = ""  # why the row has no final state, where one was to be kept
    group_fault: str = ""  # why its group could not be judged, where it was to be


def counted(row: Mapping[str, Any]) -> Counted:
    """What there is to count of a row, which an earlier version may have written."""
    input_tokens, output_tokens = tokens_of(row)
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
    state = row.get("final_state")
    return Counted(
        str(row.get("task_id")),
        str(row.get("stop_reason")),
        str(verdict.get("status")),
        None if reward is None else float(reward),
        input_tokens,
        output_tokens,
        judge=judge_of(row.get("environment"), verdict),
        explanation=str(verdict.get("explanation") or ""),
        endpoint_us=endpoint_us,
        model_retries=dict(retries),
        state_omitted=str(state.get("omitted") or "") if isinstance(state, dict) else "",
        group_fault=group_fault(str(verdict.get("reason") or "")),
    )


def mixed_versions(verdicts: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """For each judge with verdicts of several versions: its name, and how many of each."""
    for judge, counts in sorted(verdicts.items()):
        if len(counts) > 1:
            each = [f"{count} of version {version}" for version, count in sorted(counts.items())]
            yield f"{judge}: {', '.join(each)}"


@dataclass(slots=True)
class Tally:
    """Counts of a run's outcomes so far.

    Its size grows with the number of tasks, not with the number of rollouts.
    """

    completed: int = 0
    kept: int = 0
    kept_failed: int = 0
    put_back: int = 0
    # Plain, as each rollout counts in them: a Counter takes several times as long.
    rewards: dict[float, int] = field(default_factory=dict)
    unjudged: Counter[str] = field(default_factory=Counter)
    # Why groups could not be judged, and how many rollouts have no reward because of that.
    group_faults: Counter[str] = field(default_factory=Counter)
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
    # By environment, the rollouts whose final state was to be kept and was not, and why the first
    # of them was not.
    states_omitted: Counter[str] = field(default_factory=Counter)
    state_reasons: dict[str, str] = field(default_factory=dict)
    # Of the first rollout whose program's work may not be what is judged.
    work_elsewhere: str = ""
    per_task: dict[str, list[int]] = field(default_factory=dict)
    # By `JudgedBy.name` how many rewards each of its versions gave.
    verdicts: dict[str, dict[str, int]] = field(default_factory=dict)

    def add_row(self, row: Mapping[str, Any], *, kept: bool = False) -> None:
        """Count a completed rollout's row. `kept`: an earlier run wrote the row."""
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
        if one.state_omitted:
            self.states_omitted[one.judge.name] += 1
            self.state_reasons.setdefault(one.judge.name, one.state_omitted)
        if one.reward is None:
            self.unjudged[one.status] += 1
            if one.group_fault:
                self.group_faults[shortened(one.group_fault, _LONGEST_MESSAGE)] += 1
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
        """Count a failed rollout's row. `kept`: an earlier run wrote the row."""
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
        """Count a failed attempt that is retried."""
        name = boundary_name(boundary)
        self.retries[shortened(f"{name} {reason}".rstrip(), _LONGEST_CAUSE)] += 1

    @property
    def retried(self) -> int:
        """How many failed attempts were retried."""
        return self.retries.total()

    @property
    def failed(self) -> int:
        """How many rollouts failed."""
        return self.failures.total()

    @property
    def mean_reward(self) -> float | None:
        """The mean over verified rollouts; None if there is none."""
        return mean_of(self.rewards.items())


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
