"""Which rollouts an export selects. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from gymmesh_data.rollout import CUT_SHORT, StoredRollout


@dataclass(frozen=True, slots=True)
class Selection:
    """The conditions for selecting a rollout.

    Attributes:
        min_reward: the lowest reward; None: also rollouts without a reward.
        environments: the allowed environments; empty: any.
        per_task: the maximum number of rollouts per task, those with the highest rewards; None:
            all.
        distinct: whether to select only the first of the rollouts with equal messages.
        whole: whether to skip rollouts that a limit cut short (steps, tokens, context, or a
            program's time), and rollouts whose program ended with a signal or an exit code other
            than 0.
    """

    min_reward: float | None = None
    environments: frozenset[str] = frozenset()
    per_task: int | None = None
    distinct: bool = False
    whole: bool = False

    def refusal(self, rollout: StoredRollout) -> str:
        """Why a rollout is skipped, in a few words; empty if it is selected."""
        if rollout.failed:
            return "failed rollouts"
        if self.environments and rollout.environment not in self.environments:
            return "rollouts of other environments"
        if self.whole and rollout.stop_reason in (*CUT_SHORT, "PROGRAM_TIMEOUT"):
            return "rollouts cut short by a limit"
        if self.whole and _is_broken(rollout.value("program")):
            return "rollouts whose program ended with an error"
        if self.min_reward is not None:
            if rollout.reward is None:
                return "rollouts without a reward"
            if rollout.reward < self.min_reward:
                return f"rollouts with a reward below {self.min_reward:g}"
        return ""


def _is_broken(program: object) -> bool:
    """Whether a row's `program` has a signal, or an exit code other than 0."""
    if not isinstance(program, dict):
        return False
    return bool(program.get("signal") or program.get("exit_code"))


def share_of(task_id: str) -> float:
    """A number from 0 to 1 that depends only on the task's id and is evenly spread over ids. With
    this number, all repeats of a task are on the same side of a split, in every run.
    """
    digest = blake2b(task_id.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return int.from_bytes(digest) / 2**48
