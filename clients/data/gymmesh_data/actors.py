"""The conversations of a stored rollout's actors other than the root agent. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET

from gymmesh_client import UserError
from gymmesh_data.rollout import Json, RequestBeside, StoredRollout, request_of
from gymmesh_rows import Actor as ActorColumns
from gymmesh_rows import ModelCall, Row, RowError, beside_columns


@dataclass(frozen=True, slots=True)
class Actor:
    """An actor of a rollout.

    Attributes:
        reward: the actor's reward, or else the rollout's.
        trainable: whether a trainer should learn from it.
        said: the row's other keys about the actor.
        conversations: each conversation as a rollout; its `output` begins with the actor's first
            item.
        after: for each conversation, the id of the other actor's model call that it continues;
        empty if it continues none.
    """

    name: str
    reward: float | None
    trainable: bool
    said: Json
    conversations: list[StoredRollout]
    after: list[str]


def actors_of(rollout: StoredRollout) -> list[Actor]:
    """The actors of a row, in the row's order. Most rows have none.

    Raises:
        UserError: their calls do not form a tree.
    """
    if not rollout.columns.actors:
        return []
    told: list[Json] = rollout.value("actors")
    try:
        return [
            _actor(rollout, actor, said)
            for actor, said in zip(rollout.columns.actors, told, strict=True)
        ]
    except RowError as error:
        raise UserError(f"{rollout.where}: {error}") from None


def rewarded(row: Json, components: list[Json]) -> Any:
    """The `actors` of a row, with the rewards from the components of a new verdict."""
    actors = row.get("actors")
    if not isinstance(actors, list) or "actors" in beside_columns(row):
        return actors
    rewards = {one["name"]: {"reward": one["value"]} for one in components}
    return [
        {key: value for key, value in said.items() if key != "reward"}
        | rewards.get(said["name"], {})
        for said in actors
    ]


def _actor(rollout: StoredRollout, actor: ActorColumns, said: Json) -> Actor:
    conversations, after, told = list[StoredRollout](), list[str](), set[str]()
    for number, one in enumerate(rollout.columns.actor_conversations(actor.name)):
        conversations.append(
            msgspec.structs.replace(
                rollout,
                calls=one.calls,
                request=_request(rollout.columns, one.calls[-1]),
                spoken=one,
                told=frozenset(told),
                output_key=f"actor {actor.name}: conversation {number}: items",
            )
        )
        after.append(one.after)
        told.update(call.call_id for call in one.calls)
    return Actor(
        name=actor.name,
        reward=rollout.reward if actor.reward is UNSET else actor.reward,
        trainable=actor.trainable,
        said={key: value for key, value in said.items() if key != "conversations"},
        conversations=conversations,
        after=after,
    )


def _request(row: Row, call: ModelCall) -> RequestBeside:
    """What a call of an actor was asked with, where a program asked for it. An agent's own actors
    have parameters that no row holds.
    """
    return request_of(row, call) if row.is_asked_by_program(call) else RequestBeside()
