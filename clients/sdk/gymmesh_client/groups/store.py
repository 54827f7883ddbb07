"""Finished groups on their way to a trainer: bounded, each handed out until acknowledged. Pure.

A group is all repeats of a task. It is finished once the last one's outcome is on disk;
then it gets the next cursor, and stays until a cursor at or after it is acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gymmesh.rollout.v1 import rollout_pb2 as pb


@dataclass(frozen=True, slots=True)
class Group:
    """A finished group.

    Attributes:
        cursor: grows from group to group.
        task: the task.
        rollouts: its repeats by repeat_index, failed ones included.
        oldest_weights: the oldest version of the weights that generated any of it; None where
            the backend says none.
    """

    cursor: int
    task: pb.Task
    rollouts: tuple[pb.Rollout, ...]
    oldest_weights: int | None

    @property
    def rewards(self) -> list[float | None]:
        """Each repeat's reward; None where it failed or was not judged, never 0 for that."""
        verdicts = [one.verified.verification for one in self.rollouts]
        return [
            verdict.reward if one.HasField("completed") and verdict.HasField("reward") else None
            for one, verdict in zip(self.rollouts, verdicts, strict=True)
        ]


@dataclass(slots=True)
class _Open:
    task: pb.Task
    left: int
    rollouts: list[pb.Rollout] = field(default_factory=list)


class GroupStore:
    """The groups of a run.

    Args:
        most: with so many finished groups unacknowledged, no new one starts.
        concurrency: the most rollouts in flight, which with `repeats` bounds the groups that are
            under way.
        parts: whether a group of which an earlier session ran a part is handed out, too: with
            the rollouts of this session alone.

    Attributes:
        newest_weights: the newest version of the weights that was seen, or said.
        finished: groups that finished, which is the cursor of the newest one.
        stale: groups that were too old when their turn came, and were not handed out.
        partial: groups that are not handed out, since an earlier session ran part of them.
        begins: whether further groups are begun.
        closed: no more will come.
    """

    def __init__(self, most: int, concurrency: int, repeats: int, *, parts: bool = False) -> None:
        self.newest_weights: int | None = None
        self.finished = 0
        self.stale = 0
        self.partial = 0
        self.begins = True
        self.closed = False
        self._most = most
        self._parts = parts
        self._most_in_all = 0
        self._repeats = repeats
        self._coming: dict[str, _Open] = {}
        self._begun: set[str] = set()
        self._unwanted: set[str] = set()
        self._ready: dict[int, Group] = {}
        self.tune(concurrency)

    @property
    def unacknowledged(self) -> int:
        """How many finished groups no trainer has acknowledged."""
        return len(self._ready)

    @property
    def full(self) -> bool:
        """Whether new groups wait for a trainer."""
        return len(self._ready) >= self._most

    def counts(self) -> dict[str, int]:
        """What became of the groups, for the run's summary."""
        return {
            "finished": self.finished,
            "not_acknowledged": self.unacknowledged,
            "stale": self.stale,
            "partial": self.partial,
        }

    def tune(self, concurrency: int) -> None:
        """So many rollouts may be in flight."""
        self._most_in_all = self._most + -(-concurrency // self._repeats)

    def expect(self, task: pb.Task, missing: int, repeats: int) -> None:
        """So many of a task's repeats are to end in this session."""
        if task.task_id in self._unwanted:
            return
        if missing == repeats or self._parts:
            self._coming[task.task_id] = _Open(task, missing)
        else:
            self.partial += 1

    def takes(self, task_id: str) -> bool:
        """Whether a rollout of a task may start."""
        if task_id in self._begun or task_id not in self._coming:
            return True
        return not self.full and len(self._ready) + len(self._begun) < self._most_in_all

    def began(self, task_id: str) -> None:
        """A rollout of a task starts."""
        if task_id in self._coming:
            self._begun.add(task_id)

    def has_begun(self, task_id: str) -> bool:
        """Whether a rollout of a task has started, and the group is not whole yet."""
        return task_id in self._begun

    def begin_no_more(self) -> list[str]:
        """Begin no further groups. Returns the tasks that were expected, in order, of which no
        rollout has started; they are no longer expected.
        """
        self.begins = False
        unbegun = [task_id for task_id in self._coming if task_id not in self._begun]
        for task_id in unbegun:
            self._forget(task_id)
        return unbegun

    def ended(self, task_id: str, rollout: pb.Rollout) -> bool:
        """A rollout's outcome is on disk; whether that made a group whole."""
        group = self._coming.get(task_id)
        if group is None:
            return False
        for version in weights_of(rollout):
            self.weights(version)
        group.rollouts.append(rollout)
        group.left -= 1
        if group.left:
            return False
        self._forget(task_id)
        self.finished += 1
        group.rollouts.sort(key=lambda one: one.repeat_index)
        versions = [version for one in group.rollouts for version in weights_of(one)]
        self._ready[self.finished] = Group(
            self.finished, group.task, tuple(group.rollouts), min(versions, default=None)
        )
        return True

    def drop(self, task_id: str) -> None:
        """Hand this group out no more, whether it was expected already or not."""
        self._unwanted.add(task_id)
        self._forget(task_id)

    def after(self, cursor: int) -> Group | None:
        """The first group after a cursor that is not acknowledged."""
        return next((group for at, group in self._ready.items() if at > cursor), None)

    def acknowledge(self, cursor: int) -> None:
        """Forget all groups up to a cursor: the trainer has them."""
        for at in [at for at in self._ready if at <= cursor]:
            del self._ready[at]

    def is_stale(self, group: Group, max_staleness: int | None) -> bool:
        """Whether a group's oldest weights are more than so many versions behind."""
        if max_staleness is None or group.oldest_weights is None or self.newest_weights is None:
            return False
        return self.newest_weights - group.oldest_weights > max_staleness

    def discard_stale(self, group: Group) -> None:
        """A group is too old to be handed out; it is counted."""
        if self._ready.pop(group.cursor, None) is not None:
            self.stale += 1

    def weights(self, version: int) -> None:
        """The weights are at this version now; it only grows."""
        self.newest_weights = max(version, self.newest_weights or 0)

    def _forget(self, task_id: str) -> None:
        self._coming.pop(task_id, None)
        self._begun.discard(task_id)


def weights_of(rollout: pb.Rollout) -> list[int]:
    """The versions of the weights that generated what is to be trained on."""
    return [
        span.version
        for call in rollout.model_calls
        if call.trainable
        for span in call.tokens.weights
    ]
