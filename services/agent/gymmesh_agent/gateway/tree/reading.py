"""Reads a request's conversation once, from the first item to the last, along recorded calls. Pure.

The conversation after its preamble (leading system text) is hashed item by item. If the hash is
that of a recorded call's context, the next items are compared with that call's answer. The result
is the point where the conversation departs from the recorded ones, and how.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_agent.gateway.minted import Minted, answers_minted, minted_of
from gymmesh_agent.gateway.request import GatewayRequest, Json
from gymmesh_agent.gateway.tree.calls import CapturedCall
from gymmesh_agent.gateway.tree.normal_form import (
    DIGEST_BYTES,
    AnswerForm,
    PrefixHash,
    answer_form,
    is_model_item,
    is_preamble_item,
)
from gymmesh_agent.gateway.tree.read_conversation import (
    Foreign,
    ReadConversation,
    Recorded,
    recorded_ids,
    wire_ids,
)

# The most items of an answer that is compared with recorded ones where it holds several answers.
_LONGEST_ANSWER: Final = 64
# How many conversations that go on side by side are read from where they stopped.
_MOST_MARKS: Final = 8


class KnownCalls(NamedTuple):
    """The calls that a conversation may contain.

    Attributes:
        by_context: the calls by the digest of their whole conversation.
        by_id: the answered calls, by the recorded call's id.
        tag: the tag of the rollout's minted ids.
    """

    by_context: Mapping[bytes, Sequence[CapturedCall]]
    by_id: Mapping[str, CapturedCall]
    tag: str

    def answered(self, prefix: PrefixHash) -> list[CapturedCall]:
        """The answered calls with exactly this conversation."""
        calls = self.by_context.get(prefix.digest(), ())
        return [call for call in calls if call.form is not None]

    def named(self, found: Minted | None) -> CapturedCall | None:
        """The call that a minted id names; None for an id of another rollout, or of no call."""
        if found is None or found.tag != self.tag:
            return None
        return self.by_id.get(found.call_id)


class ConversationReader:
    """Reads requests. If a request begins like one of the last few, only the items after their last
    recorded answer are read. So a growing conversation costs the reading of its new items and one
    comparison of the others.

    Args:
        known: the calls so far; it grows while the reader is used.
    """

    def __init__(self, known: KnownCalls) -> None:
        self._known = known
        self._marks: list[_Mark] = []
        self._offered: _Offered | None = None

    def read(self, request: GatewayRequest) -> ReadConversation:
        """Read a request's conversation. Linear in its items."""
        mark = self._latest_mark(request.items)
        if mark is not None:
            found = self._read_from(mark, request)
            # Otherwise it leaves the recorded conversation before the mark, and how is not kept.
            if len(found.recorded) > len(mark.recorded):
                return found
        lead, begin = _read_preamble(request.items)
        start = _Mark(request.items[:begin], begin, lead, PrefixHash(), (), {})
        return self._read_from(start, request)

    def _read_from(self, mark: _Mark, request: GatewayRequest) -> ReadConversation:
        """Read the items after a mark."""
        items, place, prefix = request.items, len(mark.items), mark.prefix.copy()
        found = ReadConversation(
            items=items,
            lead=mark.lead,
            offer=self._offer(request),
            recorded=[*mark.recorded],
            ids={**mark.ids},
        )
        latest = None
        while place < len(items):
            if is_model_item(items[place]):
                place, matched = self._read_answers(found, prefix, place)
                latest = matched or latest
                continue
            if place > mark.begin:
                passed = _behind(found.last, _beside_none(self._known.answered(prefix)))
                if passed:
                    found.known, found.foreign, found.left_out = place, [], passed
            _note_output_id(found, items[place], self._known)
            prefix.add_item(items[place])
            place += 1
        found.context = prefix.digest()
        if latest is not None:
            self._keep(latest, found, mark)
        return found

    def _read_answers(
        self, found: ReadConversation, prefix: PrefixHash, place: int
    ) -> tuple[int, tuple[int, PrefixHash] | None]:
        """Read the answers that begin at `place`. Returns the place after them, and for the last
        recorded answer its place and the hash before it.
        """
        run, latest = _Run.at(found.items, place, self._known), None
        while run.place < run.end:
            there = [call for call in self._known.answered(prefix) if _may_continue(call, found)]
            start = run.place
            matched = run.recorded_answer(there, found.last) if there else None
            if matched is not None and not self._is_certain(matched, run, there, prefix):
                matched = None
            if matched is None:
                self._read_foreign(found, prefix, run, there)
                continue
            form, run.place, calls = matched
            own = calls[0].form
            assert own is not None
            latest = start, prefix.copy()
            prefix.add_answer(own, form.calls)
            if len(calls) == 1:
                _note_ids(found, form, calls[0])
            found.recorded.append(Recorded(start, run.place, tuple(calls), wire_ids(form)))
            found.boundary = found.known = run.place
            found.departed, found.foreign, found.left_out = [], [], []
        return run.end, latest

    def _is_certain(
        self,
        matched: tuple[AnswerForm, int, list[CapturedCall]],
        run: _Run,
        there: Sequence[CapturedCall],
        prefix: PrefixHash,
    ) -> bool:
        """Whether a recorded answer is certain although more items of the model follow it
        directly: all of these items together may be another call's answer that was changed.
        """
        form, end, calls = matched
        if end == run.end or run.is_named(end):
            return True
        if run.is_other_answer(end):
            return False
        if len(there) == 1:
            return True
        own = calls[0].form
        assert own is not None
        behind = prefix.copy()
        behind.add_answer(own, form.calls)
        return bool(self._known.answered(behind))

    def _read_foreign(
        self, found: ReadConversation, prefix: PrefixHash, run: _Run, there: list[CapturedCall]
    ) -> None:
        """Read items that are not the recorded answer at their place; `there`: the calls with an
        answer at that place.
        """
        start = run.place
        named = run.take_foreign(prefix, self._known)
        form = answer_form(found.items[start : run.place])
        if named is not None and named.wrote(form, named=True):
            _note_ids(found, form, named)
        else:
            for item in found.items[start : run.place]:
                _note_call_id(found, item, self._known)
        instead = tuple(_beside_none(there))
        if instead:
            found.known, found.foreign, found.left_out = start, [], []
        foreign = Foreign(start, run.place, form, named, instead)
        found.departed.append(foreign)
        found.foreign.append(foreign)

    def _offer(self, request: GatewayRequest) -> bytes:
        """A digest of the instructions and tools."""
        last = self._offered
        # Equal tools of a rollout are mostly the same object; comparing them costs as much as a
        # digest.
        if (
            last is not None
            and request.tools is last.tools
            and request.instructions == last.instructions
        ):
            return last.digest
        hashed = blake2b(request.instructions.encode(), digest_size=DIGEST_BYTES)
        hashed.update(b"\xff")
        hashed.update(msgspec.json.encode(request.tools, order="deterministic"))
        digest = hashed.digest()
        self._offered = _Offered(request.instructions, request.tools, digest)
        return digest

    def _latest_mark(self, items: Sequence[pb.Item]) -> _Mark | None:
        """The longest beginning that a request shares with the last requests."""
        alike = (one for one in self._marks if items[: len(one.items)] == one.items)
        return max(alike, key=lambda one: len(one.items), default=None)

    def _keep(
        self, latest: tuple[int, PrefixHash], found: ReadConversation, resumed: _Mark
    ) -> None:
        """Keep the state before the last recorded answer, in place of the state that was
        resumed.
        """
        place, prefix = latest
        recorded = [one for one in found.recorded if one.start < place]
        mark = _Mark(found.items[:place], resumed.begin, found.lead, prefix, recorded, found.ids)
        others = [one for one in self._marks if one is not resumed]
        self._marks = [mark, *others[: _MOST_MARKS - 1]]


class _Offered(NamedTuple):
    """The instructions and tools of the last request, and their digest."""

    instructions: str
    tools: Sequence[Json]
    digest: bytes


class _Mark(NamedTuple):
    """Where to start reading the next request of a conversation.

    Attributes:
        items: everything before the last recorded answer. That answer is read again, because
            another call may have written the same answer by then.
        begin: how many of the items are the preamble.
        lead, recorded, ids: as in ReadConversation.
        prefix: the hash of the items.
    """

    items: Sequence[pb.Item]
    begin: int
    lead: bytes
    prefix: PrefixHash
    recorded: Sequence[Recorded]
    ids: Mapping[str, str]


def _read_preamble(items: Sequence[pb.Item]) -> tuple[bytes, int]:
    """A digest of the leading system text, and its number of items."""
    place, lead = 0, PrefixHash()
    while place < len(items) and is_preamble_item(items[place]):
        lead.add_item(items[place])
        place += 1
    return lead.digest(), place


class _Run(msgspec.Struct):
    """Consecutive items that a model writes, and how far they are read.

    Attributes:
        items: the request's items.
        begin, end: the places of these items.
        names: for each of these items, the call that its ids name.
        place: the first item that is not read.
    """

    items: Sequence[pb.Item]
    begin: int
    end: int
    names: Sequence[CapturedCall | None]
    place: int

    @classmethod
    def at(cls, items: Sequence[pb.Item], place: int, known: KnownCalls) -> _Run:
        """The items of a model from `place` on."""
        end = place
        while end < len(items) and is_model_item(items[end]):
            end += 1
        names = [known.named(minted_of(item)) for item in items[place:end]]
        return cls(items, place, end, names, place)

    def recorded_answer(
        self, there: Sequence[CapturedCall], last: Sequence[CapturedCall]
    ) -> tuple[AnswerForm, int, list[CapturedCall]] | None:
        """The longest recorded answer that comes next: its form, its end, and the calls that may
        have written it.

        Args:
            there: the calls with an answer here.
            last: the calls that may have written the previous recorded answer.
        """
        for end in range(min(self.end, self.place + _LONGEST_ANSWER), self.place, -1):
            named = self.names[self.place - self.begin : end - self.begin]
            names = {call.ticket for call in named if call is not None}
            form = answer_form(self.items[self.place : end])
            if end < self.end and not form.bare and not form.calls:
                break  # the reasoning of what follows, which is no answer of its own
            calls = [
                call
                for call in there
                if (not names or names == {call.ticket}) and call.wrote(form, named=bool(names))
            ]
            if calls:
                return form, end, _told_apart(calls, form, last)
        return None

    def is_named(self, end: int) -> bool:
        """Whether ids of the items before `end` say which call wrote them."""
        return any(self.names[self.place - self.begin : end - self.begin])

    def is_other_answer(self, end: int) -> bool:
        """Whether the next items, including some after `end`, are by their ids the answer of one
        call.
        """
        for longer in range(end + 1, min(self.end, self.place + _LONGEST_ANSWER) + 1):
            named = self.names[self.place - self.begin : longer - self.begin]
            names = [call for call in named if call is not None]
            if names and all(call is names[0] for call in names):
                form = answer_form(self.items[self.place : longer])
                if names[0].wrote(form, named=True):
                    return True
        return False

    def take_foreign(self, prefix: PrefixHash, known: KnownCalls) -> CapturedCall | None:
        """Read items that are not the recorded answer at their place, until an answer that
        another call wrote, or until the context of a recorded call. Returns the call that their
        ids name.
        """
        named: CapturedCall | None = None
        start = prefix.digest()
        while self.place < self.end:
            name = self.names[self.place - self.begin]
            if name is not None and named is not None and name is not named:
                break
            if prefix.digest() != start and known.answered(prefix):
                break
            named = named or name
            prefix.add_item(self.items[self.place])
            self.place += 1
        return named


def _told_apart(
    calls: list[CapturedCall], form: AnswerForm, last: Sequence[CapturedCall]
) -> list[CapturedCall]:
    """Of several calls with an equal answer, those with the reasoning that was sent with it. Of
    these, those that continue the answer before. All of them, if these criteria don't decide.
    """
    thought = form.thought
    if len(calls) > 1 and thought:
        calls = [one for one in calls if one.form and one.form.thought == thought] or calls
    if len(calls) > 1:
        calls = [one for one in calls if one.parent in last] or calls
    return calls


def _may_continue(call: CapturedCall, found: ReadConversation) -> bool:
    """Whether a conversation may contain a call's answer: the answer of a side call is only in
    side calls.
    """
    return not call.side_call or (call.lead, call.offer) == (found.lead, found.offer)


def _beside_none(calls: Iterable[CapturedCall]) -> list[CapturedCall]:
    """The calls that are not side calls. The answers of side calls belong to no history."""
    return [call for call in calls if not call.side_call]


def _behind(last: Sequence[CapturedCall], calls: Iterable[CapturedCall]) -> list[CapturedCall]:
    """The calls that may come after the last recorded answer: others have an equal answer."""
    return [call for call in calls if not last or call.parent is None or call.parent in last]


def _note_ids(found: ReadConversation, form: AnswerForm, call: CapturedCall) -> None:
    """Note the recorded ids of an answer's tool calls."""
    found.ids.update(recorded_ids(wire_ids(form), call))


def _note_call_id(found: ReadConversation, item: pb.Item, known: KnownCalls) -> None:
    """Note the recorded id of a tool call that is at another place."""
    if item.WhichOneof("kind") == "function_call":
        _note_id(found, item.function_call.call_id, minted_of(item), known)


def _note_output_id(found: ReadConversation, item: pb.Item, known: KnownCalls) -> None:
    """Note the recorded id of the tool call that an output answers."""
    if item.WhichOneof("kind") == "function_call_output":
        _note_id(found, item.function_call_output.call_id, answers_minted(item), known)


def _note_id(found: ReadConversation, wire_id: str, name: Minted | None, known: KnownCalls) -> None:
    if wire_id in found.ids or name is None:
        return
    call = known.named(name)
    if call is not None and name.output < len(call.output):
        item = call.output[name.output]
        if item.WhichOneof("kind") == "function_call":
            found.ids[wire_id] = item.function_call.call_id
