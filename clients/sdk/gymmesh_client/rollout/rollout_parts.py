"""A rollout in its parts: the messages that its events brought, none of them copied. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from gymmesh.rollout.v1 import rollout_pb2 as pb

_NOTHING: Final = pb.Verification()

_AT_A_TIME: Final = 256

ToolKey: TypeAlias = tuple[str, str]
"""What a tool call is known by: the ids of its model call and of its function call."""


class ToolRecord(msgspec.Struct, eq=False, gc=False):
    """A tool call, with its answer once there is one."""

    key: ToolKey  # of the call, and of its answer
    started_unix_nano: int = 0  # when it was sent; zero when it never left the agent
    asked: pb.ToolCallStarted | None = None  # None where nothing was sent, and once it is answered
    completed: pb.ToolCallCompleted | None = None

    def answer(self) -> pb.ToolCallCompleted:
        """Its answer; one that only names the call, where none came."""
        if self.completed is not None:
            return self.completed
        answer = pb.ToolCallCompleted()
        answer.model_call_id, answer.call_id = self.key
        if self.asked is not None:
            answer.name, answer.actor = self.asked.name, self.asked.actor
        return answer


class RolloutParts(msgspec.Struct, eq=False, gc=False):
    """The parts of a rollout so far. Its messages are those of the events; do not change them."""

    # A Struct, and so is a ToolRecord: each rollout makes some, and no step in Python fills them.
    # Neither is ever part of a cycle.

    rollout_id: str
    attempt: int = 1
    run_id: str = ""
    task_id: str = ""
    repeat_index: int = 0
    started: pb.Started | None = None  # how it began; None for one that never did
    started_unix_nano: int = 0
    calls: list[pb.ModelCallCompleted] = []  # in the order in which they completed
    tools: list[ToolRecord] = []
    turns: list[pb.TurnCompleted] = []
    annotations: list[pb.Annotation] = []
    media: list[pb.Media] = []
    sandboxes: list[pb.SandboxOpened] = []
    program: pb.ProgramEnded | None = None
    verified: pb.Verified | None = None  # the verdict, of which are the next three
    verification: pb.Verification = _NOTHING
    reward: float | None = None
    components: Sequence[pb.RewardComponent] = ()
    completed: pb.Completed | None = None  # its end is this or `failed`
    failed: pb.Failed | None = None
    ended_unix_nano: int = 0
    size: int = 0  # bytes of its events, where they were counted

    @classmethod
    def of(cls, rollout: pb.Rollout) -> RolloutParts:
        """The parts of a message."""
        parts = cls(
            rollout.rollout_id,
            rollout.attempt,
            rollout.run_id,
            rollout.task_id,
            rollout.repeat_index,
            started_unix_nano=rollout.started_unix_nano,
            calls=rollout.model_calls[:],
            turns=rollout.turns[:],
            annotations=rollout.annotations[:],
            media=rollout.media[:],
            sandboxes=rollout.sandboxes[:],
            ended_unix_nano=rollout.ended_unix_nano,
        )
        for call in rollout.tool_calls[:]:
            answer = call.completed
            key = (answer.model_call_id, answer.call_id)
            parts.tools.append(ToolRecord(key, call.started_unix_nano, completed=answer))
        if rollout.HasField("verified"):
            parts.judge(rollout.verified)
        for name in ("started", "completed", "failed", "program"):
            if rollout.HasField(name):
                setattr(parts, name, getattr(rollout, name))
        return parts

    def judge(self, verified: pb.Verified | None) -> None:
        """Take a verdict; None: there is none."""
        self.verified = verified
        self.verification = said = _NOTHING if verified is None else verified.verification
        reward = said.reward
        self.reward = reward if reward or said.HasField("reward") else None
        self.components = said.components

    def order(self) -> None:
        """Put tool calls in the order of model calls and, within one, of its function calls."""

    def release(self) -> None:
        """Let the messages go, a few at a time: freeing very many in one step stops all threads."""
        for one in (self.calls, self.tools, self.turns, self.annotations, self.media):
            while one:
                del one[-_AT_A_TIME:]

    def message(self) -> pb.Rollout:
        """All of it as one message, which is the caller's own."""
        self.order()
        rollout = pb.Rollout(
            run_id=self.run_id,
            task_id=self.task_id,
            repeat_index=self.repeat_index,
            rollout_id=self.rollout_id,
            attempt=self.attempt,
            started_unix_nano=self.started_unix_nano,
            ended_unix_nano=self.ended_unix_nano,
        )
        for record in self.tools:
            written = rollout.tool_calls.add()
            written.started_unix_nano = record.started_unix_nano
            written.completed.CopyFrom(record.answer())
        _add_copies(rollout.model_calls, self.calls)
        _add_copies(rollout.turns, self.turns)
        _add_copies(rollout.annotations, self.annotations)
        _add_copies(rollout.media, self.media)
        _add_copies(rollout.sandboxes, self.sandboxes)
        for name in ("started", "verified", "completed", "failed", "program"):
            part = getattr(self, name)
            if part is not None:
                getattr(rollout, name).CopyFrom(part)
        return rollout


def _add_copies(field: Any, messages: Iterable[Any]) -> None:
    # Cheaper than `append`, which goes through bytes.
    for message in messages:
        field.add().CopyFrom(message)
