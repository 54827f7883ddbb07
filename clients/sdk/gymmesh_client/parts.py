"""A rollout in its parts: the messages that its events brought, none of them copied. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from gymmesh.rollout.v1 import rollout_pb2 as pb

_NOTHING: Final = pb.Verification()

ToolKey: TypeAlias = tuple[str, str]
"""What a tool call is known by: the ids of its model call and of its function call."""


class ToolRecord:
    """A tool call, with its answer once there is one.

    Args:
        key: of the call, and of its answer.
        started_unix_nano: when it was sent; zero when it never left the agent.
        name: the tool's; of no account once it is answered.
        actor: who called; likewise.
    """

    __slots__ = ("_actor", "_name", "completed", "key", "started_unix_nano")

    def __init__(
        self, key: ToolKey, started_unix_nano: int = 0, name: str = "", actor: str = ""
    ) -> None:
        self.key = key
        self.started_unix_nano = started_unix_nano
        self.completed: pb.ToolCallCompleted | None = None
        self._name = name
        self._actor = actor

    def answer(self) -> pb.ToolCallCompleted:
        """Its answer; one that only names the call, where none came."""
        if self.completed is not None:
            return self.completed
        answer = pb.ToolCallCompleted()
        answer.model_call_id, answer.call_id = self.key
        answer.name, answer.actor = self._name, self._actor
        return answer


class RolloutParts:
    """What there is of a rollout. Its messages are those of the events, and not to be changed.

    Attributes:
        started: how it began; None for one that never did.
        calls: its model calls, in the order in which they completed.
        tools: its tool calls.
        verified: the verdict; None where none came.
        verification: of this.
        reward: of this; None where there is none.
        components: of this.
        completed: its end; None where that is another one.
        failed: likewise.
    """

    __slots__ = (
        "annotations",
        "attempt",
        "calls",
        "completed",
        "components",
        "ended_unix_nano",
        "failed",
        "media",
        "repeat_index",
        "reward",
        "rollout_id",
        "run_id",
        "started",
        "started_unix_nano",
        "task_id",
        "tools",
        "turns",
        "verification",
        "verified",
    )

    def __init__(
        self, rollout_id: str, attempt: int, *, run_id: str, task_id: str, repeat_index: int
    ) -> None:
        self.rollout_id = rollout_id
        self.attempt = attempt
        self.run_id = run_id
        self.task_id = task_id
        self.repeat_index = repeat_index
        self.started: pb.Started | None = None
        self.started_unix_nano = 0
        self.calls: list[pb.ModelCallCompleted] = []
        self.tools: list[ToolRecord] = []
        # Tuples: most rollouts have none of these, and thousands of them are in flight.
        self.turns: tuple[pb.TurnCompleted, ...] = ()
        self.media: tuple[pb.MediaAdded, ...] = ()
        self.annotations: tuple[pb.Annotation, ...] = ()
        self.verified: pb.Verified | None = None
        self.verification = _NOTHING
        self.reward: float | None = None
        self.components: list[pb.RewardComponent] = []
        self.completed: pb.Completed | None = None
        self.failed: pb.Failed | None = None
        self.ended_unix_nano = 0

    @classmethod
    def of(cls, rollout: pb.Rollout) -> RolloutParts:
        """The parts of a message."""
        parts = cls(
            rollout.rollout_id,
            rollout.attempt,
            run_id=rollout.run_id,
            task_id=rollout.task_id,
            repeat_index=rollout.repeat_index,
        )
        if rollout.HasField("started"):
            parts.started = rollout.started
        parts.started_unix_nano = rollout.started_unix_nano
        parts.calls = rollout.model_calls[:]
        for told in rollout.tool_calls[:]:
            answer = told.completed
            key = (answer.model_call_id, answer.call_id)
            record = ToolRecord(key, told.started_unix_nano)
            record.completed = answer
            parts.tools.append(record)
        parts.turns = tuple(rollout.turns)
        parts.media = tuple(rollout.media)
        parts.annotations = tuple(rollout.annotations)
        if rollout.HasField("verified"):
            parts.judge(rollout.verified)
        if rollout.HasField("completed"):
            parts.completed = rollout.completed
        if rollout.HasField("failed"):
            parts.failed = rollout.failed
        parts.ended_unix_nano = rollout.ended_unix_nano
        return parts

    def judge(self, verified: pb.Verified | None) -> None:
        """Take a verdict; None: there is none."""
        self.verified = verified
        self.verification = said = _NOTHING if verified is None else verified.verification
        self.reward = said.reward if said.HasField("reward") else None
        # To ask whether a repeated field is empty, as this one mostly is, costs less than a slice.
        components = said.components
        self.components = components[:] if components else []

    def message(self) -> pb.Rollout:
        """All of it as one message, which is the caller's own."""
        rollout = pb.Rollout()
        rollout.run_id = self.run_id
        rollout.task_id = self.task_id
        rollout.repeat_index = self.repeat_index
        rollout.rollout_id = self.rollout_id
        rollout.attempt = self.attempt
        rollout.started_unix_nano = self.started_unix_nano
        rollout.ended_unix_nano = self.ended_unix_nano
        if self.started is not None:
            rollout.started.CopyFrom(self.started)
        for record in self.tools:
            written = rollout.tool_calls.add()
            written.started_unix_nano = record.started_unix_nano
            written.completed.CopyFrom(record.answer())
        _add_copies(rollout.model_calls, self.calls)
        _add_copies(rollout.turns, self.turns)
        _add_copies(rollout.media, self.media)
        _add_copies(rollout.annotations, self.annotations)
        if self.verified is not None:
            rollout.verified.CopyFrom(self.verified)
        if self.completed is not None:
            rollout.completed.CopyFrom(self.completed)
        if self.failed is not None:
            rollout.failed.CopyFrom(self.failed)
        return rollout


def _add_copies(field: Any, messages: Iterable[Any]) -> None:
    # Cheaper than `append`, which goes through bytes.
    for message in messages:
        field.add().CopyFrom(message)
