"""The fold: the events of one attempt into one Rollout, by the stream law. Pure.

The law stands in gymmesh/rollout/v1/rollout.proto. Whatever breaks it is a StreamViolation
that names the rule:

    started         the first event is not `started`, or a second `started` came
    sequence        the numbers are not 1, 2, 3 …
    identity        an event is of another rollout or attempt
    after_terminal  an event came after `completed` or `failed`
    truncated       the stream ended with no terminal event
    unknown_event   an event of an unknown kind is not marked ignorable
    unverified      completed and VERIFIED, but without a `verified` event before it; or the
                    verdict contradicts itself (VERIFIED without a finite reward, a reward
                    without VERIFIED, no status, a component that is not finite, two verdicts)
    terminal        the terminal event lacks its stop reason, cause or boundary, or counts
                    another number of events
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from gymmesh.rollout.v1 import rollout_pb2 as pb

_KEPT: Final = {
    "model_call_completed": "model_calls",
    "turn_completed": "turns",
    "media_added": "media",
    "annotation": "annotations",
}

# The kinds whose content the law says something about.
_CHECKED: Final = frozenset(("verified", "completed", "failed"))


class StreamViolation(Exception):
    """A stream of events that breaks the stream law.

    Attributes:
        rule: the rule's name, as listed in this module's docstring.
        expected: what the law asks for; may be empty.
        got: what came instead; may be empty.
    """

    def __init__(self, rule: str, sentence: str, *, expected: str = "", got: str = "") -> None:
        super().__init__(f"{rule}: {sentence}")
        self.rule = rule
        self.expected = expected
        self.got = got


class Fold:
    """Folds the events of one attempt, one at a time.

    Holds what the Rollout will hold and nothing else: deltas are let go at once. Events are
    copied, never kept or changed.
    """

    def __init__(
        self,
        rollout_id: str,
        attempt: int = 1,
        *,
        run_id: str = "",
        task_id: str = "",
        repeat_index: int = 0,
    ) -> None:
        self._rollout = pb.Rollout(
            run_id=run_id,
            task_id=task_id,
            repeat_index=repeat_index,
            rollout_id=rollout_id,
            attempt=attempt,
        )
        self._identity = (rollout_id, attempt)
        self._sequence = 0
        self._ended = False
        self._tools: list[pb.ToolCallRecord] = []
        self._open: dict[tuple[str, str], list[pb.ToolCallRecord]] = {}

    @property
    def rollout(self) -> pb.Rollout:
        """The rollout as far as it has come, for reports on one that broke off."""
        partial = pb.Rollout()
        partial.CopyFrom(self._rollout)
        partial.tool_calls.extend(_in_order(self._tools, partial))
        return partial

    @property
    def begun(self) -> bool:
        """Whether any event has come."""
        return self._sequence > 0

    @property
    def ended(self) -> bool:
        """Whether the terminal event has come."""
        return self._ended

    def add(self, event: pb.RolloutEvent) -> None:
        """Take the next event.

        Raises:
            StreamViolation: it breaks the law; nothing of it is taken.
        """
        kind = event.WhichOneof("event")
        self._check_frame(event, kind)
        if kind in _CHECKED:
            self._check_content(event, kind)
        self._sequence += 1
        if kind is not None:
            self._take(event, kind)

    def finish(self) -> pb.Rollout:
        """The whole rollout, once the stream has ended.

        Raises:
            StreamViolation: there was no terminal event (`truncated`).
        """
        if not self.ended:
            raise StreamViolation(
                "truncated",
                f"the stream ended after {self._sequence} events with no terminal one",
                expected="completed or failed",
            )
        # The fold is over, so its own message may go out without a copy.
        tools, self._tools = self._tools, []
        self._rollout.tool_calls.extend(_in_order(tools, self._rollout))
        return self._rollout

    def _check_frame(self, event: pb.RolloutEvent, kind: str | None) -> None:
        if self._ended:
            raise StreamViolation("after_terminal", f"{kind or 'an event'} came after the end")
        due = self._sequence + 1
        if event.sequence != due:
            raise StreamViolation(
                "sequence",
                f"event {due} was due, {event.sequence} came",
                expected=str(due),
                got=str(event.sequence),
            )
        ours, theirs = self._identity, (event.rollout_id, event.attempt)
        if theirs != ours:
            raise StreamViolation(
                "identity",
                "an event of another rollout or attempt came",
                expected=f"{ours[0]}/{ours[1]}",
                got=f"{theirs[0]}/{theirs[1]}",
            )
        if (kind == "started") != (due == 1):
            raise StreamViolation(
                "started", "the first event, and no other, is `started`", got=kind or "unknown"
            )
        if kind is None and not event.ignorable:
            raise StreamViolation("unknown_event", f"event {due} is of an unknown kind")

    def _check_content(self, event: pb.RolloutEvent, kind: str) -> None:
        if kind == "verified":
            if self._rollout.HasField("verified"):
                raise StreamViolation("unverified", "a second verdict came")
            _check_verdict(event.verified.verification)
        elif kind == "completed":
            if event.completed.stop_reason == pb.STOP_REASON_UNSPECIFIED:
                raise StreamViolation("terminal", "`completed` gives no stop reason")
            self._check_count(event.completed.events)
        elif kind == "failed":
            if event.failed.failure.boundary == pb.BOUNDARY_UNSPECIFIED:
                raise StreamViolation("terminal", "`failed` names no boundary")
            self._check_count(event.failed.events)

    def _check_count(self, events: int) -> None:
        if events != self._sequence + 1:
            raise StreamViolation(
                "terminal",
                "the terminal event counts another number of events",
                expected=str(self._sequence + 1),
                got=str(events),
            )

    def _take(self, event: pb.RolloutEvent, kind: str) -> None:
        rollout = self._rollout
        if kind in _KEPT:
            getattr(rollout, _KEPT[kind]).append(getattr(event, kind))
        elif kind == "tool_call_started":
            self._tool_started(event.tool_call_started, event.record_time_unix_nano)
        elif kind == "tool_call_completed":
            self._tool_completed(event.tool_call_completed)
        elif kind == "started":
            rollout.started.CopyFrom(event.started)
            rollout.started_unix_nano = event.record_time_unix_nano
        elif kind in _CHECKED:
            getattr(rollout, kind).CopyFrom(getattr(event, kind))
            if kind != "verified":
                self._ended = True
                rollout.ended_unix_nano = event.record_time_unix_nano

    def _tool_started(self, started: pb.ToolCallStarted, when: int) -> None:
        record = pb.ToolCallRecord(started_unix_nano=when)
        completed = record.completed
        completed.call_id = started.call_id
        completed.name = started.name
        completed.model_call_id = started.model_call_id
        completed.actor = started.actor
        self._tools.append(record)
        self._open.setdefault((started.model_call_id, started.call_id), []).append(record)

    def _tool_completed(self, completed: pb.ToolCallCompleted) -> None:
        waiting = self._open.get((completed.model_call_id, completed.call_id))
        if waiting:
            record = waiting.pop(0)
        else:
            record = pb.ToolCallRecord()
            self._tools.append(record)
        record.completed.CopyFrom(completed)


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


def _check_verdict(verdict: pb.Verification) -> None:
    if verdict.status == pb.VERIFICATION_STATUS_UNSPECIFIED:
        raise StreamViolation("unverified", "the verdict has no status")
    judged = verdict.status == pb.VERIFICATION_STATUS_VERIFIED
    if judged != verdict.HasField("reward"):
        raise StreamViolation("unverified", "a reward is set exactly when VERIFIED")
    if judged and not math.isfinite(verdict.reward):
        raise StreamViolation("unverified", "the reward is not finite", got=str(verdict.reward))
    for part in verdict.components:
        if not (math.isfinite(part.value) and math.isfinite(part.weight)):
            raise StreamViolation("unverified", f"component {part.name!r} is not finite")


def _in_order(tools: list[pb.ToolCallRecord], rollout: pb.Rollout) -> list[pb.ToolCallRecord]:
    """Tool calls in the order of model calls and, within one, of its function calls."""
    if len(tools) < 2:
        return tools
    places: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for number, call in enumerate(rollout.model_calls):
        for index, item in enumerate(call.response.output):
            if item.WhichOneof("kind") == "function_call":
                key = (call.call_id, item.function_call.call_id)
                places.setdefault(key, []).append((number, index))
    # A call that no answer holds (a custom agent's own) comes after the others, as it came.
    last = (len(rollout.model_calls), 0)
    keyed: list[tuple[tuple[int, int], int, pb.ToolCallRecord]] = []
    for place, record in enumerate(tools):
        known = places.get((record.completed.model_call_id, record.completed.call_id))
        keyed.append((known.pop(0) if known else last, place, record))
    keyed.sort(key=lambda entry: entry[:2])
    return [record for _, _, record in keyed]
