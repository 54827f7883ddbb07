"""Conversations: what a model call saw and gave, found by following parents. Pure.

The rule stands at the top of gymmesh/rollout/v1/rollout.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb

Item: TypeAlias = responses_pb2.Item


class Thread(NamedTuple):
    """The conversation that leads to a model call, without the items of `started`.

    Attributes:
        items: those of the rollout, not copies.
        answers: of each call whose answer has items, the place of the last one in `items`, and
            the call's id.
        whole: whether the items of `started` stand before it.
    """

    items: list[Item]
    answers: list[tuple[int, str]]
    whole: bool


def conversation(rollout: pb.Rollout, call_id: str) -> list[Item]:
    """The conversation up to and including a model call, its tools' answers and its turns.

    The items are those of the rollout, not copies.

    Raises:
        ValueError: no such call, or parents that go in a circle.
    """
    found = _thread_of(rollout, call_id)
    return [*rollout.started.items, *found.items] if found.whole else found.items


def continuation(rollout: pb.Rollout, call_id: str) -> list[Item]:
    """The conversation without the items of `started`; raises as `conversation`."""
    return _thread_of(rollout, call_id).items


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
    calls: Sequence[pb.ModelCallCompleted],
    tools: Iterable[pb.ToolCallCompleted],
    turns: Iterable[pb.TurnCompleted],
    call_id: str,
) -> Thread:
    """The conversation that leads to a call of a rollout, which has these; raises as
    `conversation`.
    """
    chain, whole = _chain(calls, call_id)
    # What tools answered, by model call and, within one, by function call.
    outputs: dict[str, dict[str, list[Item]]] = {}
    for done in tools:
        if done.HasField("output"):
            answered = outputs.setdefault(done.model_call_id, {})
            answered.setdefault(done.call_id, []).append(done.output)
    turned: dict[str, list[Item]] = {}
    for turn in turns:
        turned.setdefault(turn.model_call_id, []).extend(turn.items)
    items: list[Item] = []
    answers: list[tuple[int, str]] = []
    for met, call in chain:
        # A slice of a repeated field is made in one go, a list element by element.
        items += call.context_items[:]
        wrote = call.response.output[:]
        if wrote:
            items += wrote
            answers.append((len(items) - 1, met))
            if met in outputs:
                _add_outputs(items, wrote, outputs[met])
        if turned:
            items += turned.get(met, ())
    return Thread(items, answers, whole)


def _add_outputs(items: list[Item], wrote: list[Item], outputs: dict[str, list[Item]]) -> None:
    """Add what tools answered to a model call, in the order of its function calls."""
    taken: dict[str, int] = {}
    for item in wrote:
        if not item.HasField("function_call"):
            continue
        call_id = item.function_call.call_id
        # Two calls of one id, which only a custom agent can bring about: in order.
        place = taken.get(call_id, 0)
        taken[call_id] = place + 1
        items += outputs.get(call_id, ())[place : place + 1]


def _thread_of(rollout: pb.Rollout, call_id: str) -> Thread:
    tools = [record.completed for record in rollout.tool_calls]
    return thread(rollout.model_calls, tools, rollout.turns, call_id)


def _chain(
    all_calls: Sequence[pb.ModelCallCompleted], call_id: str
) -> tuple[list[tuple[str, pb.ModelCallCompleted]], bool]:
    """The calls from the first to `call_id`, each with its id; whether they begin at `started`."""
    calls = {call.call_id: call for call in all_calls}
    chain: list[tuple[str, pb.ModelCallCompleted]] = []
    while True:
        call = calls.pop(call_id, None)
        if call is None:
            if any(met == call_id for met, _ in chain):
                raise ValueError(f"the parents of model call {call_id!r} go in a circle")
            raise ValueError(f"the rollout has no model call {call_id!r}")
        chain.append((call_id, call))
        parent, detached = call.parent_call_id, call.detached
        if not parent or detached:
            chain.reverse()
            return chain, not detached
        call_id = parent
