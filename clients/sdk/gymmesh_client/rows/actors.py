"""What a row holds of actors beside the root agent: a critic, an opponent, a second player. Pure.

`actors` is a list of objects in the order of the actors' names, each with

- `name`, `models` (those it called), `model_calls` (how many), and `trainable` (whether a trainer
  should learn from any of them);
- `reward`: the component of the verdict that is called like the actor; absent where there is none,
  and the actor then has the row's;
- `usage`: the sum over its calls, as in `response`, whose sum has the root agent's alone;
- `conversations`. One begins where the actor begins to speak; an actor that went on twice from one
  place has one for each, and the tokens of what both share in the first alone.

A conversation has `items`, from there on, in the form of `response.output`: each of the actor's
calls has its exact tokens with the last item that it wrote; where a trainer should learn from some
of its calls, these alone do. What the actor read before is in `first_items`, absent where it began
with nothing. `after` is the id of another's model call that
it goes on from, which then stands last in `first_items`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.rollout import CallTokens, RolloutReading, call_tokens, thread
from gymmesh_client.rows.response import put_tokens, usage_row
from gymmesh_responses import JsonValue, items_to_list


def actors_of(reading: RolloutReading) -> list[JsonValue]:
    """A row's `actors`; empty where the root agent alone called models. Raises ValueError where an
    actor's calls do not form a conversation.
    """
    tokens = call_tokens(reading.parts.calls) if reading.captured else {}
    rewards = {one.name: one.value for one in reading.parts.components}
    found: list[JsonValue] = []
    for name, calls in sorted(reading.actors.items()):
        actor: dict[str, JsonValue] = {
            "name": name,
            "models": list[JsonValue](sorted({call.model for call in calls})),
            "model_calls": len(calls),
            "trainable": any(call.trainable for call in calls),
        }
        if name in rewards:
            actor["reward"] = rewards[name]
        actor["usage"] = _usage(calls)
        actor["conversations"] = _conversations(reading, calls, tokens)
        found.append(actor)
    return found


def _usage(calls: Sequence[pb.ModelCallCompleted]) -> dict[str, JsonValue]:
    spent = [call.response.usage for call in calls]
    return usage_row(
        sum(one.input_tokens for one in spent),
        sum(one.cached_tokens for one in spent),
        sum(one.output_tokens for one in spent),
        sum(one.reasoning_tokens for one in spent),
    )


def _conversations(
    reading: RolloutReading,
    calls: Sequence[pb.ModelCallCompleted],
    tokens: dict[str, CallTokens],
) -> list[JsonValue]:
    """Those of an actor's calls that it did not go on from, each with what led to it."""
    own = {call.call_id: call for call in calls}
    went_on = {call.parent_call_id for call in calls if not call.detached}
    if any(call.trainable for call in calls):
        frozen = {call.call_id for call in calls if not call.trainable}
        tokens = {call_id: found for call_id, found in tokens.items() if call_id not in frozen}
    return [
        _conversation(reading, own, call_id, tokens) for call_id in own if call_id not in went_on
    ]


def _conversation(
    reading: RolloutReading,
    own: Mapping[str, pb.ModelCallCompleted],
    call_id: str,
    tokens: dict[str, CallTokens],
) -> dict[str, JsonValue]:
    parts = reading.parts
    items, answers, whole = thread(reading.calls, parts.tools, parts.turns, call_id)
    first = own[call_id]
    while not first.detached and first.parent_call_id in own:
        first = own[first.parent_call_id]
    after = "" if first.detached else first.parent_call_id
    before = thread(reading.calls, parts.tools, parts.turns, after)[0] if after else []
    begins = len(before)
    output = items_to_list(items)
    put_tokens(output, [one for one in answers if one[0] >= begins], tokens)
    started = parts.started
    read = items_to_list(started.items) if whole and started is not None else []
    read += output[:begins]
    conversation: dict[str, JsonValue] = {}
    if after:
        conversation["after"] = after
    if read:
        conversation["first_items"] = read
    conversation["items"] = output[begins:]
    return conversation
