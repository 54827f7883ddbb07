"""Which rollouts an export takes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from gymmesh_data.rollout import CUT_SHORT, StoredRollout


@dataclass(frozen=True, slots=True)
class Selection:
    """What a rollout must be to be taken.

    Attributes:
        min_reward: its reward is at least this; None: whatever it is, or none at all.
        environments: its environment is one of these; empty: any.
        per_task: at most so many of a task, those with the highest reward; None: all.
        distinct: of rollouts with the same messages only the first.
        whole: whether rollouts that were cut short (by steps, tokens or context) are left out.
    """

    min_reward: float | None = None
    environments: frozenset[str] = frozenset()
    per_task: int | None = None
    distinct: bool = False
    whole: bool = False

    def refusal(self, rollout: StoredRollout) -> str:
        """Why a rollout is left out, in a few words; empty when it is taken."""
        if rollout.failed:
            return "failed"
        if self.environments and rollout.environment not in self.environments:
            return "of another environment"
        if self.whole and rollout.stop_reason in CUT_SHORT:
            return "cut short"
        if self.min_reward is not None:
            if rollout.reward is None:
                return "without a reward"
            if rollout.reward < self.min_reward:
                return f"with a reward below {self.min_reward:g}"
        return ""


def share_of(task_id: str) -> float:
    """A number from 0 to 1 that only depends on the task's id, evenly spread over ids: to put the
    repeats of a task on the same side of a split, in every run.
    """
    digest = blake2b(task_id.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return int.from_bytes(digest) / 2**48
