"""What a rollout's other actors said, which its row leaves out. Pure.

A row has the root agent's conversation. Every other actor has its own here: a critic, an opponent,
a second player.
"""

from __future__ import annotations

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.rollout import RolloutReading, thread
from gymmesh_client.rows.response import with_tokens
from gymmesh_responses import JsonValue


def actors_of(reading: RolloutReading) -> dict[str, JsonValue]:
    """Each actor but the root agent, by name: the `models` that it called, its `model_calls`,
    whether any of them is `trainable`, its `reward` where the verdict has a component of its name,
    and its `conversations`.

    A conversation begins where the actor begins to speak. `after` is the id of the other actor's
    model call that it goes on from, absent where it begins anew; what was said up to there is not
    said again. An actor that went on twice from one place has a conversation for each.
    """
    own: dict[str, list[pb.ModelCallCompleted]] = {}
    for call in reading.parts.calls:
        if call.actor:
            own.setdefault(call.actor, []).append(call)
    rewards = {one.name: one.value for one in reading.parts.components} if own else {}
    found: dict[str, JsonValue] = {}
    for name in sorted(own):
        reward: dict[str, JsonValue] = {"reward": rewards[name]} if name in rewards else {}
        found[name] = {
            "models": sorted({call.model for call in own[name]}),
            "model_calls": len(own[name]),
            "trainable": any(call.trainable for call in own[name]),
            **reward,
            "conversations": _conversations(reading, own[name]),
        }
    return found


def _conversations(reading: RolloutReading, calls: list[pb.ModelCallCompleted]) -> list[JsonValue]:
    """Those of an actor's calls that it did not go on from, each with what led to it."""
    by_id = {call.call_id: call for call in calls}
    went_on = {call.parent_call_id for call in calls if not call.detached}
    found: list[JsonValue] = []
    for call_id in by_id:
        if call_id in went_on:
            continue
        told = thread(reading.calls, reading.tools, reading.parts.turns, call_id, by_id)
        after = _first(by_id, call_id)
        goes_on: dict[str, JsonValue] = {"after": after} if after else {}
        found.append({**goes_on, "items": with_tokens(told, reading)})
    return found


def _first(by_id: dict[str, pb.ModelCallCompleted], call_id: str) -> str:
    """The call of another actor that a conversation goes on from; empty where it begins anew."""
    while True:
        call = by_id[call_id]
        if call.detached:
            return ""
        if call.parent_call_id not in by_id:
            return call.parent_call_id
        call_id = call.parent_call_id
