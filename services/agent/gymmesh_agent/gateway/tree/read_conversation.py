"""A request's conversation: the recorded answers in it, and the items that replace others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_agent.gateway.minted import minted_of
from gymmesh_agent.gateway.tree.calls import CapturedCall
from gymmesh_agent.gateway.tree.normal_form import AnswerForm


class Foreign(msgspec.Struct, frozen=True):
    """Items in the place of an answer that are not the recorded answer at that place.

    Attributes:
        start, end: their places in the request.
        form: the items in normal form.
        named: the call that wrote these items, by their ids; its answer is changed or at another
            place.
        instead: the calls whose recorded answer belongs at this place.
    """

    start: int
    end: int
    form: AnswerForm
    named: CapturedCall | None
    instead: tuple[CapturedCall, ...]


class Recorded(NamedTuple):
    """Items that are recorded answers.

    Attributes:
        start, end: their places in the request.
        calls: the calls that may have written them; one, unless their answers are equal.
        wire_ids: the ids of their tool calls as the program sends them, in order.
    """

    start: int
    end: int
    calls: tuple[CapturedCall, ...]
    wire_ids: tuple[str, ...]


class ReadConversation(msgspec.Struct, kw_only=True):
    """The recorded beginning of a request's conversation, and the items after it.

    Attributes:
        items: the request's items.
        lead: a digest of the leading system text.
        offer: a digest of the instructions and tools.
        context: a digest of the whole conversation without its preamble.
        recorded: the recorded answers in the conversation.
        boundary: the length, in items, of the longest recorded conversation with which the request
            begins.
        known: the length of the longest recorded context with which the request begins: at least
            the boundary. All items after it are new.
        departed: the items after the boundary in the place of answers.
        foreign: those of `departed` that are after `known`.
        left_out: the calls with this context, if no answer follows it.
        ids: maps a tool call's id in the request to the recorded id. Programs with their own ids
            may use one id in several answers; this has the last one.
    """

    items: Sequence[pb.Item]
    lead: bytes = b""
    offer: bytes = b""
    context: bytes = b""
    recorded: list[Recorded] = []
    boundary: int = 0
    known: int = 0
    departed: list[Foreign] = []
    foreign: list[Foreign] = []
    left_out: list[CapturedCall] = []
    ids: dict[str, str] = {}

    @property
    def last(self) -> tuple[CapturedCall, ...]:
        """The calls with the longest recorded conversation with which the request begins."""
        return self.recorded[-1].calls if self.recorded else ()

    def after(self, start: int, parent: CapturedCall | None) -> tuple[pb.Item, ...]:
        """The items from `start` on; recorded answers and ids have their recorded form.

        Args:
            parent: the call that the request is attached to. If several calls may have written the
                last recorded answer, `parent` wrote it.
        """
        answers = self._answers(parent)
        ids = {**self.ids}
        before = answers.get(self.recorded[-1].start) if start and self.recorded else None
        if before is not None:
            ids.update(recorded_ids(before.wire_ids, before.call))
        found: list[pb.Item] = []
        place = start
        while place < len(self.items):
            answer = answers.get(place)
            if answer is not None:
                found += answer.call.output
                ids.update(recorded_ids(answer.wire_ids, answer.call))
                place = answer.end
                continue
            item = self.items[place]
            if item.WhichOneof("kind") == "function_call" and minted_of(item) is None:
                # A call that is not known; an earlier answer may have had a call of this id.
                ids.pop(item.function_call.call_id, None)
            found.append(_with_recorded_id(item, ids))
            place += 1
        return tuple(found)

    def _answers(self, parent: CapturedCall | None) -> dict[int, _Answer]:
        """The recorded answers whose calls are known, by the places where they begin."""
        found = {
            one.start: _Answer(one.end, one.calls[0], one.wire_ids)
            for one in self.recorded
            if len(one.calls) == 1
        }
        if parent is not None and self.recorded and parent in (last := self.recorded[-1]).calls:
            found[last.start] = _Answer(last.end, parent, last.wire_ids)
        for one in self.departed:
            if one.named is not None and one.named.wrote(one.form, named=True):
                found[one.start] = _Answer(one.end, one.named, wire_ids(one.form))
        return found


class _Answer(NamedTuple):
    """A recorded answer: the place after it, the call that wrote it, and the ids as sent."""

    end: int
    call: CapturedCall
    wire_ids: tuple[str, ...]


def recorded_ids(wire_ids: Sequence[str], call: CapturedCall) -> Iterable[tuple[str, str]]:
    """The ids of an answer's tool calls as sent, each with the recorded id."""
    return zip(wire_ids, call.recorded_ids(), strict=True)


def wire_ids(form: AnswerForm) -> tuple[str, ...]:
    """The ids of an answer's tool calls as the program sends them."""
    return tuple(one.wire_id for one in form.calls)


def _with_recorded_id(item: pb.Item, ids: Mapping[str, str]) -> pb.Item:
    kind = item.WhichOneof("kind")
    if kind == "function_call_output":
        recorded = ids.get(item.function_call_output.call_id)
        if recorded is not None and recorded != item.function_call_output.call_id:
            item = _copy(item)
            item.function_call_output.call_id = recorded
    elif kind == "function_call":
        recorded = ids.get(item.function_call.call_id)
        if recorded is not None and recorded != item.function_call.call_id:
            item = _copy(item)
            item.function_call.call_id = recorded
    return item


def _copy(item: pb.Item) -> pb.Item:
    copied = pb.Item()
    copied.CopyFrom(item)
    return copied
