"""Conversations: what a model call saw and gave, found by following parents. Pure.

The rule stands at the top of gymmesh/rollout/v1/rollout.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.rollout.parts import RolloutParts, ToolKey, ToolRecord

Item: TypeAlias = responses_pb2.Item

Answered: TypeAlias = tuple[pb.ModelCallCompleted, responses_pb2.Response]
"""A model call, and its answer."""

Thread: TypeAlias = tuple[list[Item], list[tuple[int, str]], bool]
"""The conversation that leads to a model call, without the items of `started`: its items, which are
those of the rollout and not copies; of each call whose answer has items, the place of the last one
among them, and the call's id; whether the items of `started` stand before it."""


def conversation(rollout: pb.Rollout, call_id: str) -> list[Item]:
    """The conversation up to and including a model call, its tools' answers and its turns.

    The items are those of the rollout, not copies.

    Raises:
        ValueError: no such call, or parents that go in a circle.
    """
    items, _, whole = _thread_of(rollout, call_id)
    return [*rollout.started.items, *items] if whole else items


def continuation(rollout: pb.Rollout, call_id: str) -> list[Item]:
    """The conversation without the items of `started`; raises as `conversation`."""
    return _thread_of(rollout, call_id)[0]


def final_call(rollout: pb.Rollout) -> pb.ModelCallCompleted | None:
    """The end of the final transcript: the root agent's last model call, or the last call at all
    when the root agent made none. The agent has the same one judged.
    """
    for call in reversed(rollout.model_calls):
        if not call.actor:
            return call
    return rollout.model_calls[-1] if rollout.model_calls else None


def transcript(rollout: pb.Rollout) -> list[Item]:
    """The final transcript: the conversation of the final call.

    With no model call, the items that the rollout began with.
    """
    last = final_call(rollout)
    return list(rollout.started.items) if last is None else conversation(rollout, last.call_id)


def thread(
    calls: Mapping[str, Answered],
    tools: Iterable[ToolRecord],
    turns: Iterable[pb.TurnCompleted],
    call_id: str,
) -> Thread:
    """The conversation that leads to a call of a rollout, which has these calls, by their ids, tool
    calls and turns. Raises as `conversation`.
    """
    chain, whole = _chain(calls, call_id)
    # More than one only where two calls have one id, which a custom agent alone can bring about.
    outputs: dict[ToolKey, list[Item]] = {}
    for record in tools:
        done = record.completed
        if done is not None and done.HasField("output"):
            outputs.setdefault(record.key, []).append(done.output)
    turned: dict[str, list[Item]] = {}
    for turn in turns:
        turned.setdefault(turn.model_call_id, []).extend(turn.items)
    items: list[Item] = []
    answers: list[tuple[int, str]] = []
    for met, (call, response) in chain:
        items += call.context_items
        wrote = response.output[:]
        if wrote:
            items += wrote
            answers.append((len(items) - 1, met))
            for item in wrote:
                if item.HasField("function_call"):
                    answered = outputs.get((met, item.function_call.call_id))
                    if answered:
                        items.append(answered.pop(0))
        if turned:
            items += turned.get(met, ())
    return items, answers, whole


def _thread_of(rollout: pb.Rollout, call_id: str) -> Thread:
    parts = RolloutParts.of(rollout)
    calls = {call.call_id: (call, call.response) for call in parts.calls}
    return thread(calls, parts.tools, parts.turns, call_id)


def _chain(calls: Mapping[str, Answered], call_id: str) -> tuple[list[tuple[str, Answered]], bool]:
    """The calls from the first to `call_id`, each with its id; whether they begin at `started`."""
    chain: list[tuple[str, Answered]] = []
    most = len(calls)
    while True:
        answered = calls.get(call_id)
        if answered is None:
            raise ValueError(f"the rollout has no model call {call_id!r}")
        if len(chain) == most:
            met = [one for one, _ in chain] + [call_id]
            again = next(one for place, one in enumerate(met) if one in met[:place])
            raise ValueError(f"the parents of model call {again!r} go in a circle")
        chain.append((call_id, answered))
        call = answered[0]
        parent, detached = call.parent_call_id, call.detached
        if not parent or detached:
            chain.reverse()
            return chain, not detached
        call_id = parent
