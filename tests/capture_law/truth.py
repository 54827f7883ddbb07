"""What is true of a request, told by who knows where each part of its history comes from.

A history is a list of segments. A segment of input is known by its content, an answer by the call
that wrote it, so that the truth does not depend on what answers look like.

The truth is what a request shows. Where the log knows more, it is not the truth: a changed answer
without ids that is, word for word, what another call wrote in this place is that call's answer, and
of calls with equal answers to equal conversations the law's order decides, or nothing does.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from gymmesh.model.v1 import tokens_pb2
from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh.rollout.v1 import rollout_pb2
from tests.capture_law.compare import flat, is_respelling, unreadable

BRANCH = tokens_pb2.FORK_REASON_BRANCH
REWRITTEN = tokens_pb2.FORK_REASON_HISTORY_REWRITTEN
RESPELLED = tokens_pb2.FORK_REASON_RESPELLED
PREAMBLE = tokens_pb2.FORK_REASON_PREAMBLE_CHANGED
COMPACTION = tokens_pb2.FORK_REASON_COMPACTION
CONTINUATION = rollout_pb2.CALL_LINK_CONTINUATION
FORK = rollout_pb2.CALL_LINK_FORK
SIDE = rollout_pb2.CALL_LINK_SIDE
UNKNOWN = rollout_pb2.CALL_LINK_UNKNOWN

Preamble = tuple[str, tuple[str, ...]]
Thread = tuple[str, str]


@dataclass(frozen=True)
class Segment:
    """A part of a history.

    Attributes:
        key: what it is: equal for equal parts.
        wire: its items as the program sends them.
        true: its items as recorded.
        wrote: the call whose answer it is, changed or not.
        reason: why it is not that answer; None: it is, or it is no answer at all.
        is_foreign: whether the program wrote it in a model's name.
        is_named: whether an id on the wire says whose answer it is.
        summary: the call whose summary a message holds.
    """

    key: Hashable
    wire: tuple[pb.Item, ...]
    true: tuple[pb.Item, ...]
    wrote: TrueCall | None = None
    reason: int | None = None
    is_foreign: bool = False
    is_named: bool = False
    summary: TrueCall | None = None

    @property
    def is_intact(self) -> bool:
        """Whether it is an answer as it was written."""
        return self.wrote is not None and self.reason is None

    @property
    def shows_writer(self) -> bool:
        """Whether more than its words says whose answer it is."""
        return self.is_named or any(item.HasField("reasoning") for item in self.wire)


@dataclass(eq=False)
class TrueCall:
    """A call, and where it belongs.

    Attributes:
        context: the keys of the segments that it was asked with.
        said: the same as `flat` gives it: equal for calls whose conversations nobody tells apart.
    """

    number: int
    context: tuple[Hashable, ...]
    said: tuple[Hashable, ...]
    preamble: Preamble
    thread: Thread
    continues: TrueCall | None = None
    side: str = ""
    asks_summary: bool = False  # in words that the table of side calls has
    ticket: int = 0
    call_id: str = ""
    output: tuple[pb.Item, ...] = ()
    is_answered: bool = False
    waiting: int = 0  # requests that wait for the answer
    is_delivered: bool = False
    is_failed: bool = False
    digest: bytes = b""


@dataclass(frozen=True)
class Expected:
    """Where a request belongs."""

    link: int
    parent: TrueCall | None = None
    detached: bool = True
    reason: int | None = None
    side: str = ""
    is_new_actor: bool = False
    continues: bool = False


@dataclass
class Truth:
    """All calls of a session."""

    calls: list[TrueCall] = field(default_factory=list)

    def repeated(self, digest: bytes, thread: Thread, *, marked: bool) -> list[TrueCall]:
        """The calls of which a request repeats one; none: it is a call of its own."""
        equal = [call for call in self._live() if (call.digest, call.thread) == (digest, thread)]
        under_way = [call for call in equal if not call.is_delivered]
        given_up = [call for call in under_way if not call.waiting]
        return given_up or ((under_way or equal[-1:]) if marked else [])

    def expected(
        self,
        segments: Sequence[Segment],
        preamble: Preamble,
        thread: Thread,
        *,
        side: str = "",
        compacted: TrueCall | None = None,
        starter: TrueCall | None = None,
        is_sub_agent: bool = False,
    ) -> Expected:
        """Where a request belongs that is no repeat."""
        keys = tuple(segment.key for segment in segments)
        end, parent = self._longest(segments, keys, preamble, thread)
        if side:
            twins = [] if parent is None else self._twins(parent, end, segments, keys)
            alike = _likeliest(twins, preamble, thread)
            parent = alike[0] if len(alike) == 1 else None
            changed = parent is None or parent.preamble[0] != preamble[0]
            return Expected(SIDE, parent, changed, side=side)
        if parent is not None:
            if compacted is not None and not compacted.asks_summary:
                compacted = None  # it is as asked before, and nothing says that it is a summary
            found = self._after(parent, end, segments, keys, preamble, thread, compacted)
            return replace(found, continues=True)
        return self._anew(segments, keys, preamble, thread, compacted, starter, is_sub_agent)

    def equal_explanations(
        self,
        expected: Expected,
        segments: Sequence[Segment],
        preamble: Preamble,
        thread: Thread,
    ) -> list[Expected]:
        """Where a request may belong as well that continues a call under another system text or
        with other tools: there is a call under its own whose conversation is the same, word for
        word, and ids do not say which it is.
        """
        parent = expected.parent
        if parent is None or not expected.continues or parent.preamble == preamble:
            return []
        keys = tuple(segment.key for segment in segments)
        end = self._longest(segments, keys, preamble, thread)[0]
        return [
            replace(self._after(call, end, segments, keys, preamble, thread, None), continues=True)
            for call in self._twins(parent, end, segments, keys)
            if call is not parent
            and (call.preamble, call.thread, call.side) == (preamble, thread, "")
        ]

    def _twins(
        self, call: TrueCall, end: int, segments: Sequence[Segment], keys: tuple[Hashable, ...]
    ) -> list[TrueCall]:
        """The calls with this answer to this conversation that a request may mean that begins with
        them; the call is one.
        """
        if segments[end - 1].shows_writer:
            return [call]
        wrote = flat(call.output)
        return [
            other
            for other in self._live()
            if other is call
            or (
                other.is_answered
                and other.said == call.said
                and flat(other.output) == wrote
                and len(other.context) == end - 1
                and not any(
                    segment.shows_writer and own != key
                    for own, key, segment in zip(
                        other.context, keys[: end - 1], segments[: end - 1], strict=True
                    )
                )
            )
        ]

    def _live(self) -> list[TrueCall]:
        return [call for call in self.calls if not call.is_failed]

    def _longest(
        self,
        segments: Sequence[Segment],
        keys: tuple[Hashable, ...],
        preamble: Preamble,
        thread: Thread,
    ) -> tuple[int, TrueCall | None]:
        for end in range(len(segments), 0, -1):
            last = segments[end - 1]
            if last.is_intact and last.wrote is not None and last.wrote.context == keys[: end - 1]:
                return end, last.wrote
            if equal := self._equal_answers(last, keys[: end - 1]):
                return end, _likeliest(equal, preamble, thread)[0]
        return 0, None

    def _equal_answers(self, segment: Segment, context: tuple[Hashable, ...]) -> list[TrueCall]:
        """The calls whose answer, there, a changed one is word for word."""
        if segment.is_named or segment.reason is None:
            return []
        words, raw = flat(segment.wire), unreadable(segment.wire)
        return [
            call
            for call in self._there(context)
            if flat(call.output) == words and unreadable(call.output) == raw
        ]

    def _there(self, context: tuple[Hashable, ...]) -> list[TrueCall]:
        return [
            call
            for call in self._live()
            if call.is_answered and not call.side and call.context == context
        ]

    def _departures(
        self, start: int, segments: Sequence[Segment], keys: tuple[Hashable, ...]
    ) -> tuple[Segment | None, list[TrueCall], list[TrueCall]]:
        """Behind the longest context that was asked before: the segment in the place of an answer,
        the answers there, and those left out.
        """
        for place in range(len(segments) - 1, max(start, 1) - 1, -1):
            there = self._there(keys[:place])
            if there and (segments[place].wrote is not None or segments[place].is_foreign):
                return segments[place], there, []
            if there:
                return None, [], there
        for segment in segments[start:]:
            if segment.wrote is not None or segment.is_foreign:
                return segment, [], []
        return None, [], []

    def _summary(
        self, start: int, segments: Sequence[Segment], keys: tuple[Hashable, ...]
    ) -> TrueCall | None:
        """The call whose summary stands behind the longest context that was asked before, with no
        later answer beside it.
        """
        places = range(len(segments) - 1, max(start, 1) - 1, -1)
        known = next((place for place in places if self._there(keys[:place])), start)
        behind = segments[known:]
        newest = max((one.wrote.number for one in behind if one.wrote), default=0)
        for one in reversed(behind):
            call = one.summary or (one.wrote if one.is_intact else None)
            if call is not None and (one.summary or call.asks_summary) and newest <= call.number:
                return call
        return None

    def _after(
        self,
        parent: TrueCall,
        end: int,
        segments: Sequence[Segment],
        keys: tuple[Hashable, ...],
        preamble: Preamble,
        thread: Thread,
        compacted: TrueCall | None,
    ) -> Expected:
        first, there, left_out = self._departures(end, segments, keys)
        detached = parent.preamble[0] != preamble[0]
        changed = parent.preamble != preamble
        used = any(call.continues is parent for call in self._live())
        if thread[1] and thread != parent.thread:
            return Expected(FORK, parent, detached, BRANCH, is_new_actor=True)
        if compacted is not None:
            return Expected(FORK, parent, detached, COMPACTION)
        if first is not None:
            same = [call for call in there if call.thread == thread] or there
            return Expected(FORK, parent, detached, _reason(first, same))
        if left_out:
            return Expected(FORK, parent, detached, REWRITTEN)
        if changed:
            return Expected(FORK, parent, detached, PREAMBLE)
        if used:
            return Expected(FORK, parent, detached, BRANCH)
        return Expected(CONTINUATION, parent, detached)

    def _anew(
        self,
        segments: Sequence[Segment],
        keys: tuple[Hashable, ...],
        preamble: Preamble,
        thread: Thread,
        compacted: TrueCall | None,
        starter: TrueCall | None,
        is_sub_agent: bool,
    ) -> Expected:
        def alike(calls: Sequence[TrueCall]) -> list[TrueCall]:
            return [call for call in calls if (call.preamble, call.thread) == (preamble, thread)]

        same = [call for call in self._live() if call.context == keys and not call.side]
        if alike(same):
            return Expected(FORK, None, reason=BRANCH)
        first, there, left_out = self._departures(0, segments, keys)
        compacted = compacted or self._summary(0, segments, keys)
        if compacted is not None:
            return Expected(FORK, compacted, reason=COMPACTION)
        if first is not None and (instead := alike(there)):
            is_known = first.is_named or first.reason == RESPELLED
            near = [first.wrote] if is_known and first.wrote in instead else instead
            return Expected(FORK, _only(near), reason=_reason(first, instead))
        if skipped := alike(left_out):
            return Expected(FORK, _only(skipped), reason=REWRITTEN)
        if moved := [one for one in segments if one.wrote is not None]:
            named = [one.wrote for one in moved if one.is_named]
            if not named and all(one.is_intact for one in segments if one.wrote or one.is_foreign):
                named = [moved[-1].wrote]  # by its words
            return Expected(FORK, named[-1] if named else None, reason=REWRITTEN)
        if starter is not None:
            return Expected(FORK, starter, reason=BRANCH, is_new_actor=True)
        return Expected(CONTINUATION, None, is_new_actor=is_sub_agent)


def _reason(first: Segment, there: Sequence[TrueCall]) -> int:
    """Why a history departs with `first` in the place of these answers."""
    if not first.is_named:
        # Whether it is one of them, and which, is not shown: the words of the nearest give the
        # reason, though the log may know that another call wrote them.
        is_near = any(is_respelling(call.output, first.wire) for call in there)
        return RESPELLED if is_near else REWRITTEN
    if first.wrote in there and first.reason is not None:
        return first.reason
    return REWRITTEN


def _likeliest(calls: Sequence[TrueCall], preamble: Preamble, thread: Thread) -> Sequence[TrueCall]:
    """Those of the request's session and agent, and of these those with its system text,
    instructions and tools, where there are any.
    """
    kept = [call for call in calls if call.thread == thread] or calls
    if kept[:1] and kept[0].thread == thread:
        kept = [call for call in kept if call.preamble[0] == preamble[0]] or kept
    return [call for call in kept if call.preamble == preamble] or kept


def _only(calls: Sequence[TrueCall | None]) -> TrueCall | None:
    return calls[0] if len(calls) == 1 else None
