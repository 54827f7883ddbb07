"""The fold: the events of one attempt into one Rollout, by the stream law. Pure.

The law stands in gymmesh/rollout/v1/rollout.proto. Whatever breaks it is a StreamViolation
that names the rule:

    started         the first event is not `started`, or a second `started` came
    sequence        the numbers are not 1, 2, 3 …
    identity        an event is of another rollout or attempt
    after_terminal  an event came after `completed` or `failed`
    truncated       the stream ended with no terminal event
    unknown_event   an event of an unknown kind is not marked ignorable
    unverified      `completed` without a `verified` event before it; or the verdict contradicts
                    itself (VERIFIED without a finite reward, a reward without VERIFIED, no status
                    or an unknown one, a component that is not finite, two verdicts)
    terminal        the terminal event lacks its stop reason or boundary, has one that is not
                    known, or counts another number of events
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.rollout.rollout_parts import RolloutParts, ToolKey, ToolRecord

# An outcome with a value that this reader does not know would be guessed.
_STOP_REASONS: Final = frozenset(pb.StopReason.values()) - {pb.STOP_REASON_UNSPECIFIED}
_BOUNDARIES: Final = frozenset(pb.Boundary.values()) - {pb.BOUNDARY_UNSPECIFIED}
_STATUSES: Final = frozenset(pb.VerificationStatus.values()) - {pb.VERIFICATION_STATUS_UNSPECIFIED}


class StreamViolation(Exception):
    """A stream of events that breaks a rule of the contract.

    Attributes:
        rule: the rule's name, as listed in this module's docstring.
        expected: what the rule requires; may be empty.
        got: what arrived instead; may be empty.
    """

    def __init__(self, rule: str, sentence: str, *, expected: str = "", got: str = "") -> None:
        super().__init__(f"{rule}: {sentence}")
        self.rule = rule
        self.expected = expected
        self.got = got


class Fold(RolloutParts):
    """Folds the events of one attempt, one at a time, into the parts of its rollout.

    It keeps only the parts of the later Rollout: deltas are dropped at once. Events are not copied,
    so they must not change afterwards. A kept part of an event stays in memory until the rollout
    ends, together with the message around it.

    Attributes:
        ended: whether the terminal event arrived.
    """

    # An object with the parts and not beside them, since each rollout makes one.

    ended: bool = False
    _sequence: int = 0
    # Tool calls that are not answered yet, by model call and function call.
    _open: dict[ToolKey, deque[ToolRecord]] = msgspec.field(default_factory=dict)

    @property
    def rollout(self) -> pb.Rollout:
        """The rollout so far, for reports about a rollout that broke off."""
        return self.message()

    @property
    def begun(self) -> bool:
        """Whether any event arrived."""
        return self._sequence > 0

    def add(self, event: pb.RolloutEvent) -> None:
        """Add the next event.

        Raises:
            StreamViolation: the event breaks a rule; no part of it is used.
        """
        kind = event.WhichOneof("event")
        due = self._sequence + 1
        if self.ended:
            raise StreamViolation(
                "after_terminal", f"{kind or 'an event'} arrived after the terminal event"
            )
        if event.sequence != due:
            raise StreamViolation(
                "sequence",
                f"expected event {due}, got {event.sequence}",
                expected=str(due),
                got=str(event.sequence),
            )
        if event.rollout_id != self.rollout_id or event.attempt != self.attempt:
            raise StreamViolation(
                "identity",
                "got an event of another rollout or attempt",
                expected=f"{self.rollout_id}/{self.attempt}",
                got=f"{event.rollout_id}/{event.attempt}",
            )
        if (kind == "started") != (due == 1):
            sentence = "`started` must be the first event, and only the first"
            raise StreamViolation("started", sentence, got=kind or "unknown")
        if kind in _TAKEN:
            _TAKEN[kind](self, event)
        elif kind is None and not event.ignorable:
            raise StreamViolation("unknown_event", f"event {due} has an unknown type")
        self._sequence = due

    def finish(self) -> pb.Rollout:
        """The complete rollout, once the stream has ended.

        Raises:
            StreamViolation: there was no terminal event (`truncated`).
        """
        return self.parts().message()

    def parts(self) -> RolloutParts:
        """The whole rollout, without a copy, its tool calls as they came; raises as `finish`."""
        if not self.ended:
            raise StreamViolation(
                "truncated",
                f"the stream ended after {self._sequence} events without a terminal event",
                expected="completed or failed",
            )
        return self

    def order(self) -> None:
        """See RolloutParts; in their order they stay, whatever comes."""
        if len(self.tools) > 1:
            self.tools = [self.tools[place] for place in _order(self.tools, self.calls)]

    # -- what is taken of each kind ----------------------------------------------------------------

    def _take_started(self, event: pb.RolloutEvent) -> None:
        self.started = event.started
        self.started_unix_nano = event.record_time_unix_nano

    def _take_call(self, event: pb.RolloutEvent) -> None:
        self.calls.append(event.model_call_completed)

    def _take_turn(self, event: pb.RolloutEvent) -> None:
        self.turns.append(event.turn_completed)

    def _take_annotation(self, event: pb.RolloutEvent) -> None:
        self.annotations.append(event.annotation)

    def _take_medium(self, event: pb.RolloutEvent) -> None:
        self.media.append(event.media_added.media)

    def _take_sandbox(self, event: pb.RolloutEvent) -> None:
        self.sandboxes.append(event.sandbox_opened)

    def _take_sandbox_end(self, event: pb.RolloutEvent) -> None:
        ended = event.sandbox_ended
        for place, opened in enumerate(self.sandboxes):
            ref = opened.sandbox
            if (ref.sandbox_id, ref.instance_id) == (ended.sandbox_id, ended.instance_id):
                self.sandboxes[place] = found = pb.SandboxOpened()
                found.CopyFrom(opened)
                found.end.CopyFrom(ended.end)

    def _take_program_end(self, event: pb.RolloutEvent) -> None:
        self.program = event.program_ended

    def _take_tool_start(self, event: pb.RolloutEvent) -> None:
        started = event.tool_call_started
        key = (started.model_call_id, started.call_id)
        record = ToolRecord(key, event.record_time_unix_nano, started)
        self.tools.append(record)
        self._open.setdefault(key, deque()).append(record)

    def _take_tool_answer(self, event: pb.RolloutEvent) -> None:
        completed = event.tool_call_completed
        key = (completed.model_call_id, completed.call_id)
        waiting = self._open.get(key)
        if waiting:
            record = waiting.popleft()
            record.asked = None  # the answer says it again
            if not waiting:
                del self._open[key]
        else:
            record = ToolRecord(key)
            self.tools.append(record)
        record.completed = completed

    def _take_verdict(self, event: pb.RolloutEvent) -> None:
        if self.verified is not None:
            raise StreamViolation("unverified", "got a second verdict")
        self.judge(event.verified)
        try:
            _check_verdict(self)
        except StreamViolation:
            self.judge(None)
            raise

    def _take_completed(self, event: pb.RolloutEvent) -> None:
        completed = event.completed
        if completed.stop_reason not in _STOP_REASONS:
            reason = str(completed.stop_reason)
            raise StreamViolation("terminal", "`completed` has no known stop reason", got=reason)
        if self.verified is None:
            raise StreamViolation("unverified", "`completed` came without `verified`")
        self._end(event, completed.events)
        self.completed = completed

    def _take_failed(self, event: pb.RolloutEvent) -> None:
        failed = event.failed
        if failed.failure.boundary not in _BOUNDARIES:
            boundary = str(failed.failure.boundary)
            raise StreamViolation("terminal", "`failed` names no known boundary", got=boundary)
        self._end(event, failed.events)
        self.failed = failed

    def _end(self, event: pb.RolloutEvent, events: int) -> None:
        if events != self._sequence + 1:
            raise StreamViolation(
                "terminal",
                "the terminal event has a wrong event count",
                expected=str(self._sequence + 1),
                got=str(events),
            )
        self.ended = True
        self.ended_unix_nano = event.record_time_unix_nano


# Of other kinds, deltas, nothing is taken.
_TAKEN: Final[dict[str | None, Callable[[Fold, pb.RolloutEvent], None]]] = {
    "started": Fold._take_started,
    "model_call_completed": Fold._take_call,
    "tool_call_started": Fold._take_tool_start,
    "tool_call_completed": Fold._take_tool_answer,
    "turn_completed": Fold._take_turn,
    "verified": Fold._take_verdict,
    "completed": Fold._take_completed,
    "failed": Fold._take_failed,
    "annotation": Fold._take_annotation,
    "media_added": Fold._take_medium,
    "sandbox_opened": Fold._take_sandbox,
    "sandbox_ended": Fold._take_sandbox_end,
    "program_ended": Fold._take_program_end,
}


def fold(
    events: Iterable[pb.RolloutEvent],
    rollout_id: str,
    attempt: int = 1,
    *,
    run_id: str = "",
    task_id: str = "",
    repeat_index: int = 0,
) -> pb.Rollout:
    """Fold a whole stream; raises StreamViolation as `Fold` does."""
    state = Fold(rollout_id, attempt, run_id=run_id, task_id=task_id, repeat_index=repeat_index)
    for event in events:
        state.add(event)
    return state.finish()


def _check_verdict(parts: RolloutParts) -> None:
    status, reward = parts.verification.status, parts.reward
    if status not in _STATUSES:
        raise StreamViolation("unverified", "the verdict has no known status", got=str(status))
    judged = status == pb.VERIFICATION_STATUS_VERIFIED
    if judged != (reward is not None):
        raise StreamViolation(
            "unverified", "a reward must be set exactly when the status is VERIFIED"
        )
    if reward is not None and not math.isfinite(reward):
        raise StreamViolation("unverified", "the reward is not finite", got=str(reward))
    for part in parts.components:
        if not (math.isfinite(part.value) and math.isfinite(part.weight)):
            raise StreamViolation("unverified", f"component {part.name!r} is not finite")


def _order(tools: list[ToolRecord], calls: list[pb.ModelCallCompleted]) -> list[int]:
    """The places of tool calls in the order in which they belong."""
    known: dict[ToolKey, list[tuple[int, int]]] = {}
    for number, call in enumerate(calls):
        for index, item in enumerate(call.response.output[:]):
            if item.HasField("function_call"):
                key = (call.call_id, item.function_call.call_id)
                known.setdefault(key, []).append((number, index))
    # A call that no answer holds (a custom agent's own) comes after the others, as it came.
    last = (len(calls), 0)
    keyed: list[tuple[tuple[int, int], int]] = []
    for found in known.values():
        found.reverse()  # the first is taken first, from the end
    for place, record in enumerate(tools):
        found = known.get(record.key, [])
        keyed.append((found.pop() if found else last, place))
    keyed.sort()
    return [place for _, place in keyed]
