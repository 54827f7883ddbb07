"""What a stored rollout's actors beside the root agent said. Pure.

A row has them under `actors`: see gymmesh_client.rows. A row of another program, or of an earlier
version, may have a key of its own by that name, which is its task's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from gymmesh_data.rollout import Json, StoredRollout, items_in
from gymmesh_responses import CodecError, loads
from gymmesh_rows import COLUMNS

_KEY: Final = "actors"


@dataclass(frozen=True, slots=True)
class Actor:
    """An actor of a rollout.

    Attributes:
        reward: its own, else the rollout's.
        trainable: whether a trainer should learn from it.
        said: what else the row says of it.
        conversations: each as a rollout whose `output` begins where the actor begins to speak.
        after: of each conversation, the id of another actor's model call that it goes on from;
            empty where there is none.
    """

    name: str
    reward: float | None
    trainable: bool
    said: Json
    conversations: list[StoredRollout]
    after: list[str]


def actors_of(rollout: StoredRollout) -> list[Actor]:
    """The actors of a row, in its order; mostly none.

    Raises:
        UserError: the items of a conversation are no list of objects.
    """
    value = _read(rollout.row.get(_KEY))
    if not _are_actors(value):
        return []
    return [_actor(rollout, place, said) for place, said in enumerate(value)]


def is_own_key(row: Json, key: str) -> bool:
    """Whether a row's key is its own, and neither its task's nor evidence."""
    return key in COLUMNS and (key != _KEY or _are_actors(_read(row.get(_KEY))))


def rewarded(actors: Any, components: list[Json]) -> Any:
    """A row's `actors` with the rewards of another verdict, which has these components."""
    if not _are_actors(actors):
        return actors
    rewards = {one["name"]: {"reward": one["value"]} for one in components}
    return [
        {key: value for key, value in said.items() if key != "reward"}
        | rewards.get(said["name"], {})
        for said in actors
    ]


def _read(value: Any) -> Any:
    """A key's value, where a reader of parts of rows left it as JSON text."""
    if type(value) is not msgspec.Raw:
        return value
    try:
        return loads(bytes(value))
    except CodecError:
        return None


def _are_actors(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(one, dict)
            and isinstance(one.get("name"), str)
            and isinstance(one.get("conversations"), list)
            and all(isinstance(said, dict) and "items" in said for said in one["conversations"])
            for one in value
        )
    )


def _actor(rollout: StoredRollout, place: int, said: Json) -> Actor:
    own = said.get("reward")
    known = isinstance(own, int | float) and not isinstance(own, bool)
    conversations = []
    for number, one in enumerate(said["conversations"]):
        key = f"{_KEY}[{place}].conversations[{number}]"
        first = items_in(one.get("first_items", []), rollout.where, f"{key}.first_items")
        conversations.append(
            msgspec.structs.replace(
                rollout,
                first_items=first,
                output=items_in(one["items"], rollout.where, f"{key}.items"),
                output_key=f"{key}.items",
                instructions="",
                tools=[],
            )
        )
    after = [one.get("after") for one in said["conversations"]]
    return Actor(
        name=said["name"],
        reward=float(own) if known and own is not None else rollout.reward,
        trainable=said.get("trainable") is True,
        said={key: value for key, value in said.items() if key != "conversations"},
        conversations=conversations,
        after=[one if isinstance(one, str) else "" for one in after],
    )
