"""Rollouts as NeMo Gym's own rows: the last item of each model call has the call's whole tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gymmesh_client import UserError
from gymmesh_data.exports.format import Format, Taken, TokenPlace
from gymmesh_data.rollout import Json
from gymmesh_data.samples import NoSequence
from gymmesh_rows import TOKEN_KEYS, RowError, nemo_row


def row(taken: Taken) -> Iterator[Json]:
    """The row, with tokens and reasoning if requested."""
    try:
        made = nemo_row(taken.rollout.columns)
    except RowError as error:
        raise UserError(f"{taken.rollout.where}: {error}") from None
    if taken.with_tokens and any(map(_lacks_prompt, _items_of(made))):
        taken.said.losses[NoSequence.why] = 1
    if taken.with_tokens and taken.style.keep_reasoning:
        yield made
        return
    made["response"] = _without(made["response"], taken, "output")
    if taken.rollout.columns.actors:
        made["actors"] = [
            actor
            | {"conversations": [_without(one, taken, "items") for one in actor["conversations"]]}
            for actor in made["actors"]
        ]
    yield made


def _items_of(row: Json) -> Iterator[Any]:
    """The items of all conversations of a row."""
    yield from row["response"]["output"]
    for actor in row.get("actors") or ():
        for conversation in actor["conversations"]:
            yield from conversation["items"]


def _lacks_prompt(item: Any) -> bool:
    """Whether an item has sampled ids, but not the ids that their call read."""
    return bool(item.get("generation_token_ids")) and not item.get("prompt_token_ids")


def _without(conversation: Json, taken: Taken, key: str) -> Json:
    """A conversation without the tokens or the reasoning that are not asked for."""
    items = conversation[key]
    if not taken.style.keep_reasoning:
        items = [one for one in items if one.get("type") != "reasoning"]
    if not taken.with_tokens:
        items = [{name: one[name] for name in one if name not in TOKEN_KEYS} for one in items]
    return conversation | {key: items}


MADE: Final = (
    Format(
        name="nemo-gym",
        about="rows in the format of NeMo Gym",
        of_rollout=row,
        tokens=TokenPlace.BESIDE,
        actors=True,
    ),
)
"""The formats of this module."""
