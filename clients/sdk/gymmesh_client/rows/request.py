"""What a row holds of its task, read once for the repeats that share it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_responses import (
    JsonValue,
    dumps_clean,
    item_to_json,
    loads,
    media_urls,
    params_to_dict,
    text_of,
    with_images,
    with_images_in_json,
)
from gymmesh_rows import COLUMNS, METADATA_COLUMNS

# What is no larger, in bytes, is kept for the next rollout that has the same.
_KNOWN_BYTES: Final = 64 * 1024
_NONE: Final[Mapping[str, str]] = {}
# What the API echoes of a request in every response, with its defaults.
_ECHOED: Final[dict[str, JsonValue]] = {
    "background": None,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": None,
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt": None,
    "reasoning": None,
    "service_tier": None,
    "temperature": None,
    "text": None,
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": None,
    "top_p": None,
    "truncation": None,
    "user": None,
}


class TaskExtras(msgspec.Struct, frozen=True):
    """The further keys of a task's row; shared by its repeats.

    Attributes:
        overlay: those whose names are free in a row, as a JSON object.
        names: their names.
        metadata: the members of its `metadata` whose names are free there, as a JSON object.
        kept: what has the name of a column, in a row or in its `metadata`, as a JSON object.
    """

    overlay: bytes
    names: frozenset[str]
    metadata: bytes
    kept: Raw | UnsetType


def names_of(media: Sequence[pb.Media]) -> Mapping[str, str]:
    """The URLs that name media, by the data URLs that hold them."""
    return {held: named for named, held in media_urls(media).items()} if media else {}


def request_of(
    task: pb.Task, started: pb.Started | None, names: Mapping[str, str]
) -> tuple[Raw, bytes]:
    """A row's `responses_create_params`, and the JSON object of what its response repeats of them.

    They are the task's own parameters, but for the input as the rollout began with them; its own
    alone for a rollout that never started. names: of the images that the row has already. Raises
    ValueError when they are not JSON.
    """
    # The repeats of a task have the same parameters, and a run's tasks mostly the same tools.
    used = None
    if started is not None and started.HasField("params"):
        used = started.params.SerializeToString()
    own = task.params.SerializeToString()
    if names:
        return _params_of(own, used, names)
    known = len(own) + len(used or b"") <= _KNOWN_BYTES
    return _known_params(own, used) if known else _params_of(own, used)


def first_items(task: pb.Task, started: pb.Started | None, names: Mapping[str, str]) -> list[Raw]:
    """What the conversation began with; empty where that is the task's input alone.

    names: as for `request_of`.
    """
    if started is None:
        return []
    items, params = started.items, task.params
    if params.HasField("input_text"):
        same = (
            len(items) == 1
            and items[0].message.role == "user"
            and text_of(items[0]) == params.input_text
        )
    else:
        same = (
            items == params.input
            if not names
            else _named(items, names) == _named(params.input, names)
        )
    return [] if same else [Raw(item_to_json(item)) for item in items]


def _named(items: Iterable[responses_pb2.Item], names: Mapping[str, str]) -> list[Any]:
    return [with_images(item, names) for item in items]


def extras_of(task: pb.Task) -> TaskExtras:
    """The further keys of the task's row. Raises ValueError when they are not a JSON object."""
    payload = task.payload_json
    return _known_extras(payload) if len(payload) <= _KNOWN_BYTES else _read_extras(payload)


def _params_of(
    own: bytes, used: bytes | None, names: Mapping[str, str] = _NONE
) -> tuple[Raw, bytes]:
    in_force = {} if used is None else _document_of(used)
    asked = _document_of(own)
    document = asked | in_force
    if "input" in asked:
        document["input"] = with_images_in_json(asked["input"], names)
    else:
        document.pop("input", None)
    # A null stands for the default, which the API then echoes.
    echoed = {
        key: default if in_force.get(key) is None else in_force[key]
        for key, default in _ECHOED.items()
    }
    return Raw(dumps_clean(document)), dumps_clean(echoed)


def _document_of(params: bytes) -> dict[str, JsonValue]:
    return _known_document(params) if len(params) <= _KNOWN_BYTES else _read_document(params)


def _read_document(params: bytes) -> dict[str, JsonValue]:
    return params_to_dict(responses_pb2.ResponseParams.FromString(params))


def _read_extras(payload_json: bytes) -> TaskExtras:
    payload: Any = loads(payload_json) if payload_json else {}
    if type(payload) is not dict:
        raise ValueError("the task's payload is not a JSON object")
    free = {key: value for key, value in payload.items() if key not in COLUMNS}
    kept = {key: value for key, value in payload.items() if key in COLUMNS}
    metadata: dict[str, JsonValue] = {}
    if type(kept.get("metadata")) is dict:
        given = kept.pop("metadata")
        metadata = {key: value for key, value in given.items() if key not in METADATA_COLUMNS}
        if hidden := {key: value for key, value in given.items() if key in METADATA_COLUMNS}:
            kept["metadata"] = hidden
    return TaskExtras(
        dumps_clean(free) if free else b"",
        frozenset(free),
        dumps_clean(metadata) if metadata else b"",
        Raw(dumps_clean(kept)) if kept else UNSET,
    )


_known_params = lru_cache(maxsize=256)(_params_of)
_known_document = lru_cache(maxsize=256)(_read_document)
_known_extras = lru_cache(maxsize=256)(_read_extras)
