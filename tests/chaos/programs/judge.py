"""What is wrong with the rows of a run of programs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tests.chaos.programs.lines import WantedLines

#: Where a rollout may fail whose program or services were killed.
_BOUNDARIES: Final = frozenset(
    ("PROGRAM", "SANDBOX", "MODEL", "RESOURCE", "AGENT", "VERIFIER", "DEADLINE")
)
#: With these something failed that nobody foresaw.
_UNFORESEEN: Final = frozenset(
    ("", "UNSPECIFIED", "INTERNAL_FAULT", "AGENT_FAULT", "ENVIRONMENT_FAULT", "VERIFIER_FAULT",
     "CONTRACT_VIOLATED", "TASK_INVALID", "FIELD_INVALID", "PROGRAM_NOT_FOUND")
)  # fmt: skip


def judge_rows(
    wanted: Sequence[WantedLines],
    rows: Sequence[Mapping[str, Any]],
    failures: Sequence[Mapping[str, Any]],
    killed: int,
) -> Iterable[str]:
    """Each rollout has one outcome: completed and right, or failed with its cause.

    killed: how many programs were killed. Such an end may be judged by what the program did, see
    docs/how-to/programs.md; no more rollouts may end so.
    """
    counts = Counter(row["task_id"] for row in (*rows, *failures))
    asked = {one.task_id: one for one in wanted}
    for task_id in sorted(asked.keys() | counts.keys()):
        if counts[task_id] != 1 or task_id not in asked:
            known = "" if task_id in asked else ", but was not requested"
            yield f"{task_id} has {counts[task_id]} outcomes{known}"
    ended_by_kill = [row for row in rows if row["program"].get("signal")]
    if len(ended_by_kill) > killed:
        yield (
            f"{len(ended_by_kill)} programs ended by a signal, but the test killed only {killed} "
            "programs"
        )
    for row in rows:
        if row["task_id"] in asked and not row["program"].get("signal"):
            yield from _completed(asked[row["task_id"]], row)
    for row in failures:
        yield from _failed(row)


def _completed(task: WantedLines, row: Mapping[str, Any]) -> Iterable[str]:
    name = f"{row['rollout_id']} ({task.task_id}, attempt {row['attempt']})"
    if row["reward"] != 1.0:
        yield (
            f"{name}: the reward is {row['reward']}, expected 1.0. Verification: "
            f"{row['verification']}. Program: {row.get('program')}"
        )
    if row["stop_reason"] != "PROGRAM_EXITED":
        yield f"{name}: the stop reason is {row['stop_reason']}, expected PROGRAM_EXITED"
    if row["program"].get("exit_code") != 0:
        yield f"{name}: the program's exit code is not 0: {row['program']}"
    ids = [call["call_id"] for call in row["calls"]]
    if len(ids) != task.calls or len(set(ids)) != len(ids):
        yield f"{name}: the row has the calls {ids}, expected {task.calls} different calls"


def _failed(row: Mapping[str, Any]) -> Iterable[str]:
    failure, name = row["failure"], row["rollout_id"]
    reason = failure["status"]["reason"]
    if row["reward"] is not None or "verification" in row:
        yield f"{name}: failed, but the row has a reward or a verification"
    if failure["boundary"] not in _BOUNDARIES or reason in _UNFORESEEN:
        yield (
            f"{name}: failed with an unexpected boundary or reason: {failure['boundary']}, "
            f"{failure['status']}"
        )
