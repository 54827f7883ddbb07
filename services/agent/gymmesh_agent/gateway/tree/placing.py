"""Decides where one request belongs, from the result of reading it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gymmesh.model.v1 import tokens_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.gateway.request import GatewayRequest
from gymmesh_agent.gateway.tree.actors import Actors
from gymmesh_agent.gateway.tree.calls import CapturedCall, only
from gymmesh_agent.gateway.tree.compactions import Compactions
from gymmesh_agent.gateway.tree.normal_form import user_texts
from gymmesh_agent.gateway.tree.placement import NewCall
from gymmesh_agent.gateway.tree.read_conversation import Foreign, ReadConversation
from gymmesh_agent.gateway.tree.side_calls import ProgramHabits, side_call_of
from gymmesh_agent.gateway.tree.written import WrittenAnswers, repeats_input

_FORK: Final = rollout_pb2.CALL_LINK_FORK
_BRANCH: Final = tokens_pb2.FORK_REASON_BRANCH
_REWRITTEN: Final = tokens_pb2.FORK_REASON_HISTORY_REWRITTEN


class TreeState(msgspec.Struct, frozen=True):
    """What the tree knows of the rollout so far.

    Attributes:
        by_context: the calls by the digest of their whole conversation.
        actors: the actor of each conversation.
        answers: everything that the model wrote.
        compactions: the calls that requested a summary.
        own_answers: assistant messages that the program itself wrote into the beginning of a
            conversation (examples), by their keys in normal form.
    """

    by_context: Mapping[bytes, Sequence[CapturedCall]]
    actors: Actors
    answers: WrittenAnswers
    compactions: Compactions
    own_answers: set[bytes]


class Placing:
    """One request to place.

    Args:
        habits: what is known of the program's calls.
        call: the request's call; its actor, parent and kind are set here.
    """

    def __init__(
        self,
        state: TreeState,
        habits: ProgramHabits,
        request: GatewayRequest,
        read: ReadConversation,
        call: CapturedCall,
    ) -> None:
        self._state = state
        self._request = request
        self._read = read
        self._call = call
        self._rule = side_call_of(habits, request, lambda texts: bool(state.actors.starters(texts)))
        self._is_known = bool(habits.program)
        self._own_answers = habits.own_answers
        self._lacks_tools = habits.tools_always and not request.tools

    def decide(self) -> NewCall:
        """Where the request belongs."""
        last = _likeliest(self._read.last, self._call)
        parent = only(last)
        if self._rule is not None and not self._rule.trained:
            return self._beside(parent, self._rule.kind)
        self._call.compaction = self._rule is not None
        if parent is not None and parent.side_call:
            return self._beside(parent, parent.side_call)
        if parent is not None:
            placed = self._after(parent)
        elif last:
            placed = self._unknown(_actor_of(last))
        else:
            placed = self._anew()
        if placed.link != rollout_pb2.CALL_LINK_UNKNOWN:
            self._state.actors.add(self._call)
            self._call.added = True
        return placed

    def _beside(self, parent: CapturedCall | None, kind: str) -> NewCall:
        """A side call: recorded and not trained on."""
        self._call.actor = self._call.side_call = kind
        self._call.trained = False
        return self._placed(parent, rollout_pb2.CALL_LINK_SIDE)

    def _after(self, parent: CapturedCall) -> NewCall:
        """A request that begins with a recorded conversation."""
        call = self._call
        call.parent = parent
        call.actor = self._actor_after(parent)
        call.trained = parent.trained
        fork = self._departure(parent)
        offers_less = self._lacks_tools and call.offer != parent.offer and not call.compaction
        if offers_less:
            # A call without tools of a program that always has some: beside the conversation, or
            # its last word? No line of the table says it.
            call.actor, call.trained = self._state.actors.new("unknown"), False
            return self._placed(parent, rollout_pb2.CALL_LINK_UNKNOWN)
        if fork is None:
            return self._placed(parent, rollout_pb2.CALL_LINK_CONTINUATION)
        return self._placed(parent, _FORK, fork)

    def _departure(self, parent: CapturedCall) -> tokens_pb2.Fork | None:
        """Why the request does not simply continue the call; None: it does."""
        call, read = self._call, self._read
        is_changed = (call.lead, call.offer) != (parent.lead, parent.offer)
        is_other = call.actor != parent.actor
        if not (is_changed or is_other or read.foreign or read.left_out or parent.continued):
            return None
        if is_other:
            return _fork(_BRANCH, "a sub-agent begins with this conversation")
        is_again = bool(self._alike(self._state.by_context.get(read.context, ())))
        if not (is_again or call.compaction):
            new_window = self._state.actors.is_new_window(call)
            compaction = self._state.compactions.led_to(read, call, new_window, self._own_answers)
            if compaction is not None and compaction is not parent:
                return _compacted(compaction)
        if read.left_out:
            return _left_out(read.left_out)[0]
        if read.foreign:
            same = [one for one in read.foreign[0].instead if one.thread == call.thread]
            return self._changed(read.foreign[0], same or read.foreign[0].instead)[0]
        if is_changed:
            return _fork(tokens_pb2.FORK_REASON_PREAMBLE_CHANGED, _what_changed(parent, call))
        return _fork(_BRANCH, "another call already continues this conversation")

    def _anew(self) -> NewCall:
        """A request that begins with no recorded conversation."""
        call, read, state = self._call, self._read, self._state
        if again := self._alike(state.by_context.get(read.context, ())):
            fork = _fork(_BRANCH, "the program asks for another answer to the same conversation")
            placed = self._detached(None, fork, again[0].actor)
            call.led = again[0].led  # what led to the conversation, a summary say, is the same
            return placed
        if not call.compaction:
            new_window = state.actors.is_new_window(call)
            compaction = state.compactions.led_to(read, call, new_window, self._own_answers)
            if compaction is not None:
                return self._detached(compaction, _compacted(compaction), compaction.actor)
            if quoted := self._quoted():
                return self._begun_with(quoted)
        if read.foreign and (instead := self._alike(read.foreign[0].instead)):
            fork, changed = self._changed(read.foreign[0], instead)
            return self._detached(changed, fork, instead[0].actor)
        if left_out := self._alike(read.left_out):
            fork, skipped = _left_out(left_out)
            return self._detached(skipped, fork, left_out[0].actor)
        named = [one.named for one in read.departed if one.named is not None]
        if named:
            return self._detached(named[-1], _changed_before(named[-1]), named[-1].actor)
        moved = only(state.answers.ends_of([one.form for one in read.departed]))
        if moved is not None and self._alike([moved]) and not self._holds_own_answers():
            return self._detached(moved, _changed_before(moved), moved.actor)
        is_own = all(one.form.key in state.own_answers for one in read.departed)
        if state.actors.has_main and not is_own:
            return self._unknown(state.actors.of(call))
        return self._begin()

    def _quoted(self) -> list[CapturedCall]:
        """The calls with whose answer, as a summary, a program begins again, if the program's
        requests for summaries are unknown.
        """
        is_sub_agent = bool(self._state.actors.starters(user_texts(self._read.items)))
        if self._is_known or is_sub_agent:
            return []
        found = self._state.compactions.quoted_by(self._read)
        # Another agent may be given an answer to review, but not with others of the conversation.
        may_begin_anew = self._state.actors.may_begin_anew
        is_other = all(may_begin_anew(one, self._call) is False for one in found)
        # Or it goes on with a compaction, and has changed its system text since.
        asked = self._state.by_context.get(self._read.context, ())
        was_asked = any(one.led in found for one in asked)
        return [] if is_other and not self._read.foreign and not was_asked else found

    def _begun_with(self, quoted: Sequence[CapturedCall]) -> NewCall:
        """A conversation that begins again with the answer of one of these calls."""
        summary = only(quoted)
        is_certain = summary is not None and self._state.actors.may_begin_anew(summary, self._call)
        if summary is None or not is_certain or repeats_input(summary):
            return self._unknown(_actor_of(quoted))
        detail = f"the conversation begins again with the answer of the call {summary.call_id}"
        fork = _fork(tokens_pb2.FORK_REASON_COMPACTION, detail)
        return self._detached(summary, fork, summary.actor)

    def _holds_own_answers(self) -> bool:
        """Whether the program wrote one of the answers itself, as an example."""
        return any(one.form.key in self._state.own_answers for one in self._read.departed)

    def _changed(
        self, foreign: Foreign, instead: Sequence[CapturedCall]
    ) -> tuple[tokens_pb2.Fork, CapturedCall | None]:
        """Why a history departs that has other content in place of an answer, and the call of
        that answer; None: several calls have an answer at this place, or no call has one.
        """
        if foreign.named is not None and foreign.named in foreign.instead:
            instead = [foreign.named]
        elif not instead and foreign.named is not None:
            return _changed_before(foreign.named), foreign.named
        elif not instead:
            return _out_of_place(self._state.answers.writers(foreign.form)), None
        elif foreign.named is not None:
            return _exchanged(instead, foreign.named), only(instead)
        named = foreign.named is not None
        reasons = {call.ticket: call.departure(foreign.form, named) for call in instead}
        near = [call for call in instead if reasons[call.ticket] != _REWRITTEN] or instead
        detail = f"the answer of the call {near[0].call_id} has changed"
        # Of several the nearest gives the reason, and which was changed cannot be told.
        return _fork(reasons[near[0].ticket], detail), only(instead)

    def _begin(self) -> NewCall:
        """A new conversation begins: no model of this rollout wrote any part of it."""
        call, actors = self._call, self._state.actors
        starters = actors.starters(user_texts(self._read.items))
        known = actors.beginning(call)
        if call.compaction:
            # It quotes the conversation in place of continuing it.
            call.actor = actors.of(call) or ""
            return self._placed(None, rollout_pb2.CALL_LINK_CONTINUATION)
        if self._lacks_tools:
            call.trained = False
            return self._unknown(None)
        if known is not None and not starters:
            is_same = (known.lead, known.offer) == (call.lead, call.offer)
            return self._unknown(known.actor if is_same else None)
        call.begins = True
        self._state.own_answers.update(one.form.key for one in self._read.departed)
        starter = only(starters)
        if starters or call.thread[1]:
            call.actor = actors.new("subagent")
        elif actors.has_main:
            call.actor = actors.new("conversation")
        if starter is None:
            return self._placed(None, rollout_pb2.CALL_LINK_CONTINUATION)
        return self._placed(starter, _FORK, _fork(_BRANCH, "a sub-agent begins"), detached=True)

    def _unknown(self, actor: str | None) -> NewCall:
        """The tree can't tell where the request belongs."""
        self._call.actor = self._state.actors.new("unknown") if actor is None else actor
        return self._placed(None, rollout_pb2.CALL_LINK_UNKNOWN)

    def _detached(self, led: CapturedCall | None, fork: tokens_pb2.Fork, actor: str) -> NewCall:
        """A conversation that begins again, for a known reason."""
        self._call.led = led
        known = None
        if led is not None and led.thread != self._call.thread:
            known = self._state.actors.of(self._call)
        self._call.actor = actor if known is None else known
        return self._placed(led, _FORK, fork, detached=True)

    def _actor_after(self, parent: CapturedCall) -> str:
        """The actor of a call that is attached to another call."""
        call, actors = self._call, self._state.actors
        if call.thread == parent.thread:
            return parent.actor
        known = actors.of(call)
        if known is not None:
            return known
        return actors.new("subagent") if call.thread[1] else parent.actor

    def _alike(self, calls: Sequence[CapturedCall]) -> list[CapturedCall]:
        """The calls with the same session, agent, instructions and tools, except side calls."""
        own = self._call
        return [
            call
            for call in calls
            if not call.side_call
            and (call.lead, call.offer, call.thread) == (own.lead, own.offer, own.thread)
        ]

    def _placed(
        self,
        parent: CapturedCall | None,
        link: rollout_pb2.CallLink.ValueType,
        fork: tokens_pb2.Fork | None = None,
        *,
        detached: bool = False,
    ) -> NewCall:
        call, read = self._call, self._read
        # The parent's conversation holds its leading system text.
        detached = detached or parent is None or parent.lead != call.lead
        return NewCall(
            ticket=call.ticket,
            parent=parent.call_id if parent is not None else "",
            detached=detached,
            items=read.after(0 if detached else read.boundary, parent),
            link=link,
            fork=fork,
            side_call=call.side_call,
            actor=call.actor,
            trainable=call.trained,
        )


def _likeliest(calls: Sequence[CapturedCall], own: CapturedCall) -> list[CapturedCall]:
    """Of calls with equal answers, those of the same session and agent, if there are any. Of
    these, those with the same instructions and tools, if there are any.
    """
    kept = list(calls)
    for keep in (
        [call for call in kept if call.thread == own.thread],
        [call for call in kept if call.thread == own.thread and call.lead == own.lead],
    ):
        kept = keep or kept
    alike = [call for call in kept if (call.lead, call.offer) == (own.lead, own.offer)]
    return alike or kept


def _actor_of(calls: Sequence[CapturedCall]) -> str | None:
    actors = {call.actor for call in calls}
    return actors.pop() if len(actors) == 1 else None


def _fork(reason: tokens_pb2.ForkReason.ValueType, detail: str) -> tokens_pb2.Fork:
    return tokens_pb2.Fork(reason=reason, detail=detail)


def _compacted(compaction: CapturedCall) -> tokens_pb2.Fork:
    detail = f"the summary of the call {compaction.call_id} replaces the history"
    return _fork(tokens_pb2.FORK_REASON_COMPACTION, detail)


def _changed_before(call: CapturedCall) -> tokens_pb2.Fork:
    return _fork(
        _REWRITTEN, f"the history before the answer of the call {call.call_id} has changed"
    )


def _exchanged(instead: Sequence[CapturedCall], named: CapturedCall) -> tokens_pb2.Fork:
    """The fork of a history in which an answer is, by its ids, the answer of another call than
    these. However similar the words are, it is not a spelling of their answers.
    """
    names = ", ".join(call.call_id for call in instead)
    return _fork(
        _REWRITTEN,
        f"the answer of the call {named.call_id} replaces the answer of the call {names}",
    )


def _out_of_place(writers: Sequence[CapturedCall]) -> tokens_pb2.Fork:
    """The fork of a history with an answer at a place where no recorded conversation has one;
    `writers`: the calls that wrote the same words.
    """
    if not writers:
        return _fork(
            _REWRITTEN, "the request has a model answer that no call of the rollout returned"
        )
    names = ", ".join(call.call_id for call in writers)
    return _fork(
        _REWRITTEN,
        f"the request has the answer of the call {names}, but the history before this answer has "
        "changed",
    )


def _left_out(
    calls: Sequence[CapturedCall],
) -> tuple[tokens_pb2.Fork, CapturedCall | None]:
    """The fork of a history that omits the answer of these calls, and the call; None: there are
    several answers to the same conversation.
    """
    names = ", ".join(call.call_id for call in calls)
    return _fork(_REWRITTEN, f"the history omits the answer of the call {names}"), only(calls)


def _what_changed(parent: CapturedCall, call: CapturedCall) -> str:
    if parent.lead != call.lead:
        return "the system text has changed"
    return "the instructions or tools have changed"
