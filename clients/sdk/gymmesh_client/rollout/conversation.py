"""Conversations: the input and answer of a model call, found by following parents. Pure.

The rule is at the top of gymmesh/rollout/v1/rollout.proto.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.rollout.rollout_parts import RolloutParts, ToolKey, ToolRecord
from gymmesh_responses import media_urls, with_images

Item: TypeAlias = responses_pb2.Item

Answered: TypeAlias = tuple[pb.ModelCallCompleted, responses_pb2.Response]
"""A model call, and its answer."""


class CallPart(NamedTuple):
    """A model call's own part of its conversation; its items are those of the rollout, not copies.

    Attributes:
        items: the items before the answer, the answer, the outputs of its tool calls, and its
            turns.
        context_count: the number of items before the answer.
        answer_count: the number of items of the answer.
    """

    items: list[Item]
    context_count: int
    answer_count: int


def conversation(rollout: pb.Rollout, call_id: str) -> list[Item]:
    """The conversation up to and including a model call, with its tools' answers and its turns.

    The items are those of the rollout, not copies. Items with images are copies that contain the
    images, which the rollout's items only name.

    Raises:
        ValueError: there is no such call, or the parents form a cycle.
    """
    items, whole = _items_of(rollout, call_id)
    return _held(rollout, [*rollout.started.items, *items] if whole else items)


def continuation(rollout: pb.Rollout, call_id: str) -> list[Item]:
    """The conversation without the items of `started`; raises as `conversation`."""
    return _held(rollout, _items_of(rollout, call_id)[0])


def final_call(rollout: pb.Rollout) -> pb.ModelCallCompleted | None:
    """The end of the final transcript: the root agent's last model call. If the root agent made no
    call, the last call of all. The agent has the same call judged.
    """
    for call in reversed(rollout.model_calls):
        if not call.actor:
            return call
    return rollout.model_calls[-1] if rollout.model_calls else None


def transcript(rollout: pb.Rollout) -> list[Item]:
    """The final transcript: the conversation of the final call.

    For a rollout without a model call: the items that the rollout started with.
    """
    last = final_call(rollout)
    if last is not None:
        return conversation(rollout, last.call_id)
    return _held(rollout, list(rollout.started.items))


class CallParts:
    """Finds the parts of the calls of a rollout that has these tool calls and turns.

    Args:
        calls: all calls of the rollout, where some have an id that another has, too, which a custom
            agent alone brings about. Each takes its outputs and turns in the order of the calls.
    """

    def __init__(
        self,
        tools: Iterable[ToolRecord],
        turns: Sequence[pb.TurnCompleted],
        calls: Sequence[pb.ModelCallCompleted] = (),
    ) -> None:
        # More than one where two function calls of an answer have one id, or two model calls.
        self._outputs: dict[ToolKey, list[Item]] = {}
        for record in tools:
            done = record.completed
            if done is not None and done.HasField("output"):
                self._outputs.setdefault(record.key, []).append(done.output)
        self._turned: dict[str, list[Item]] = {}
        for turn in turns:
            self._turned.setdefault(turn.model_call_id, []).extend(turn.items)
        #: The parts of calls whose id is not theirs alone, by the calls' identity.
        self._by_place: dict[int, CallPart] = {}
        if calls:
            self._divide(calls, turns)

    def of(self, call_id: str, answered: Answered) -> CallPart:
        """The part of the call of that id."""
        if self._by_place:
            found = self._by_place.get(id(answered[0]))
            if found is not None:
                return found
        return self._part(call_id, answered, {}, self._turned.get(call_id, ()))

    def release(self) -> None:
        """Let the parts go, one at a time; see RolloutParts.release."""
        for found in (self._outputs, self._turned, self._by_place):
            while found:
                found.popitem()

    def _divide(
        self, calls: Sequence[pb.ModelCallCompleted], turns: Sequence[pb.TurnCompleted]
    ) -> None:
        left = Counter(call.call_id for call in calls)
        shared = {call_id for call_id, count in left.items() if count > 1}
        turned = {call_id: deque[pb.TurnCompleted]() for call_id in shared}
        for turn in turns:
            if turn.model_call_id in shared:
                turned[turn.model_call_id].append(turn)
        used: dict[str, dict[str, int]] = {call_id: {} for call_id in shared}
        for call in calls:
            call_id = call.call_id
            if call_id not in shared:
                continue
            left[call_id] -= 1
            mine: list[Item] = []
            while turned[call_id]:
                mine += turned[call_id].popleft().items
                if left[call_id]:
                    break  # the last call takes what is left
            part = self._part(call_id, (call, call.response), used[call_id], mine)
            self._by_place[id(call)] = part

    def _part(
        self, call_id: str, answered: Answered, used: dict[str, int], turned: Sequence[Item]
    ) -> CallPart:
        """A call's part. used: how many outputs of each function call are taken."""
        call, response = answered
        items = call.context_items[:]
        context = len(items)
        wrote = response.output[:]
        items += wrote
        if self._outputs:
            for item in wrote:
                if item.HasField("function_call"):
                    name = item.function_call.call_id
                    outputs = self._outputs.get((call_id, name), ())
                    place = used.get(name, 0)
                    if place < len(outputs):
                        items.append(outputs[place])
                        used[name] = place + 1
        items += turned
        return CallPart(items, context, len(wrote))


def _held(rollout: pb.Rollout, items: list[Item]) -> list[Item]:
    """Items with the images in them that they name."""
    if not rollout.media:
        return items
    urls = media_urls(rollout.media)
    return [with_images(item, urls) for item in items]


def _items_of(rollout: pb.Rollout, call_id: str) -> tuple[list[Item], bool]:
    """The conversation without the items of `started`; whether these stand before it."""
    parts = RolloutParts.of(rollout)
    calls = {call.call_id: (call, call.response) for call in parts.calls}
    path, whole = path_to(calls, call_id)
    found = CallParts(parts.tools, parts.turns, shared_ids(parts.calls, calls))
    items: list[Item] = []
    for one, answered in path:
        items += found.of(one, answered).items
    return items, whole


def shared_ids(
    calls: Sequence[pb.ModelCallCompleted], by_id: Mapping[str, Answered]
) -> Sequence[pb.ModelCallCompleted]:
    """The calls of a rollout where some have an id that another has, too; else none."""
    return calls if len(by_id) < len(calls) else ()


def path_to(calls: Mapping[str, Answered], call_id: str) -> tuple[list[tuple[str, Answered]], bool]:
    """The calls from the first to `call_id`, each with its id; whether they begin at `started`.

    calls: of the rollout, by their ids. Raises as `conversation`.
    """
    chain: list[tuple[str, Answered]] = []
    most = len(calls)
    while True:
        answered = calls.get(call_id)
        if answered is None:
            raise ValueError(f"the rollout has no model call {call_id!r}")
        if len(chain) == most:
            raise ValueError(f"the parents of model call {call_id!r} form a cycle")
        chain.append((call_id, answered))
        call = answered[0]
        parent, detached = call.parent_call_id, call.detached
        if not parent or detached:
            chain.reverse()
            return chain, not detached
        call_id = parent
