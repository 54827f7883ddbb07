"""Conversations: what a model call saw and gave, found by following parents. Pure.

The rule stands at the top of gymmesh/rollout/v1/rollout.proto.
"""

from __future__ import annotations

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb


def conversation(rollout: pb.Rollout, call_id: str) -> list[responses_pb2.Item]:
    """The conversation up to and including a model call, its tools' answers and its turns.

    The items are those of the rollout, not copies.

    Raises:
        ValueError: no such call, or parents that go in a circle.
    """
    chain, base = _chain(rollout, call_id)
    answers = Answers(rollout)
    items = list(rollout.started.items) if base else []
    for call in chain:
        items.extend(answers.own_items(call))
    return items


def continuation(rollout: pb.Rollout, call_id: str) -> list[responses_pb2.Item]:
    """The conversation without the items of `started`; raises as `conversation`."""
    chain, _ = _chain(rollout, call_id)
    answers = Answers(rollout)
    return [item for call in chain for item in answers.own_items(call)]


def answer_places(rollout: pb.Rollout, call_id: str) -> list[tuple[int, str]]:
    """Where in `continuation` each call's answer ends: the place of its last item, and the call.

    A call whose answer has no items is left out.
    """
    chain, _ = _chain(rollout, call_id)
    answers = Answers(rollout)
    places: list[tuple[int, str]] = []
    start = 0
    for call in chain:
        wrote = len(call.context_items) + len(call.response.output)
        if call.response.output:
            places.append((start + wrote - 1, call.call_id))
        start += len(answers.own_items(call))
    return places


def final_call(rollout: pb.Rollout) -> pb.ModelCallCompleted | None:
    """The end of the final transcript: the root agent's last model call, or the last call at all
    when the root agent made none. The agent has the same one judged.
    """
    for call in reversed(rollout.model_calls):
        if not call.actor:
            return call
    return rollout.model_calls[-1] if rollout.model_calls else None


def transcript(rollout: pb.Rollout) -> list[responses_pb2.Item]:
    """The final transcript: the conversation of the final call.

    With no model call, the items that the rollout began with.
    """
    last = final_call(rollout)
    return list(rollout.started.items) if last is None else conversation(rollout, last.call_id)


class Answers:
    """What tools and turns answered to a rollout's model calls, looked up once for all calls."""

    def __init__(self, rollout: pb.Rollout) -> None:
        self._outputs: dict[tuple[str, str], list[responses_pb2.Item]] = {}
        for record in rollout.tool_calls:
            done = record.completed
            if done.HasField("output"):
                key = (done.model_call_id, done.call_id)
                self._outputs.setdefault(key, []).append(done.output)
        self._turns: dict[str, list[responses_pb2.Item]] = {}
        for turn in rollout.turns:
            self._turns.setdefault(turn.model_call_id, []).extend(turn.items)

    def own_items(self, call: pb.ModelCallCompleted) -> list[responses_pb2.Item]:
        """What one model call adds: its context, its answer, its tools' outputs, its turns."""
        items = [*call.context_items, *call.response.output]
        met: dict[str, int] = {}
        for item in call.response.output:
            if not item.HasField("function_call"):
                continue
            call_id = item.function_call.call_id
            # Two calls of one id, which only a custom agent can bring about: in order.
            place = met.get(call_id, 0)
            met[call_id] = place + 1
            outputs = self._outputs.get((call.call_id, call_id), ())
            items.extend(outputs[place : place + 1])
        items.extend(self._turns.get(call.call_id, ()))
        return items


def _chain(rollout: pb.Rollout, call_id: str) -> tuple[list[pb.ModelCallCompleted], bool]:
    """The calls from the first to `call_id`, and whether they begin at `started`."""
    calls = {call.call_id: call for call in rollout.model_calls}
    chain: list[pb.ModelCallCompleted] = []
    met: set[str] = set()
    while True:
        if call_id not in calls:
            raise ValueError(f"the rollout has no model call {call_id!r}")
        if call_id in met:
            raise ValueError(f"the parents of model call {call_id!r} go in a circle")
        met.add(call_id)
        call = calls[call_id]
        chain.append(call)
        if call.detached or not call.parent_call_id:
            chain.reverse()
            return chain, not call.detached
        call_id = call.parent_call_id
