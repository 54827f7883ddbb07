"""What the rows of a task have in common: made once for its repeats, in JSON already. Pure.

A row is made of values (`Shared`, see `shared_of`), or with what it shares as `Part`s of JSON that
are written before (`SharedRows`). Either way its bytes are the same.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.parts import RolloutParts
from gymmesh_client.reading import Reading
from gymmesh_client.response import rollout_response, usage, usage_json
from gymmesh_responses import JsonValue, items_to_list, loads, params_to_dict, text_of
from gymmesh_responses.jsonio import NotPlain, Part, write_part

# What is no larger, in bytes, is kept for the next rollout that has the same.
_KNOWN_BYTES: Final = 64 * 1024
# Tasks whose rows' shared parts are kept: more than a run has under way, with many repeats each.
_KNOWN_TASKS: Final = 256
# Of the class: a message looks through the names of its fields to find its own methods.
_BYTES: Final = pb.Started.SerializeToString
# The first byte of a message's field 6.
_FIELD_6: Final = 6 << 3
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


@dataclass(frozen=True, slots=True)
class Shared:
    """What a row has of its task and of how its rollout began. Not to be changed.

    Attributes:
        document: the task's own parameters, but for the input as the rollout began with them; its
            own alone for a rollout that never started.
        echoed: what the response says again of these.
        first_items: what the conversation began with; None where that is the task's input alone.
        labels: the task's seed and tags, as far as it has them.
        extras: the further keys of the task's row.
        tail: `echoed` as a response ends with it in JSON, but for the last brace; None: not written
            yet.
    """

    document: JsonValue
    echoed: dict[str, JsonValue]
    first_items: JsonValue
    task_id: str
    environment: str
    agent: str
    labels: dict[str, JsonValue]
    extras: dict[str, JsonValue]
    tail: bytes | None = None

    def response(self, reading: Reading) -> JsonValue:
        """The whole response of a rollout."""
        row = rollout_response(reading)
        if self.tail is None:
            row["usage"] = usage(reading)
            return row | self.echoed
        # What it ends with is one Part with its usage; the rest is written with the row, in one go.
        row["usage"] = Part(usage_json(reading) + self.tail)
        return row


def shared_of(task: pb.Task, parts: RolloutParts) -> Shared:
    """What a row has of these. Raises ValueError when it is not JSON."""
    started = parts.started
    # The repeats of a task have the same parameters, and a run's tasks mostly the same tools.
    used = None
    if started is not None and started.HasField("params"):
        used = started.params.SerializeToString()
    own = task.params.SerializeToString()
    known = len(own) + len(used or b"") <= _KNOWN_BYTES
    document, echoed = _known_params(own, used) if known else _params_of(own, used)
    first_items = None
    if started is not None and not _begins_with_input(task, started):
        first_items = items_to_list(started.items[:])
    labels: dict[str, JsonValue] = {}
    if task.HasField("seed"):
        labels["seed"] = task.seed
    if task.tags:
        labels["tags"] = dict(sorted(task.tags.items()))
    return Shared(
        document,
        echoed,
        first_items,
        task_id=parts.task_id or task.task_id,
        environment=(started.environment if started is not None else "") or task.environment,
        agent=(started.agent if started is not None else "") or task.agent,
        labels=labels,
        extras=_extras_of(task.payload_json),
    )


@dataclass(slots=True)
class _Known:
    """A task, and what its rows share while their rollouts begin with these bytes."""

    task: pb.Task
    beginning: bytes
    shared: Shared


class SharedRows:
    """Knows what the rows of a run's tasks share."""

    def __init__(self) -> None:
        # None: the task had one row so far. The oldest make room.
        self._known: dict[str, _Known | None] = {}

    def of(self, task: pb.Task, parts: RolloutParts) -> Shared:
        """As `shared_of`; written already, mostly, from the third row of a task on."""
        known = self._known.get(parts.task_id)
        started = parts.started
        if started is None:
            return shared_of(task, parts)
        if known is not None:
            alike = known.task is task and _begins(started, known.beginning)
            return known.shared if alike else shared_of(task, parts)
        shared = shared_of(task, parts)
        self._learn(task, started, parts.task_id, shared)
        return shared

    def _learn(self, task: pb.Task, started: pb.Started, task_id: str, shared: Shared) -> None:
        known = self._known
        if task_id not in known:
            # What has one row only is not worth the work.
            if len(known) >= _KNOWN_TASKS:
                del known[next(iter(known))]
            known[task_id] = None
        elif task.ByteSize() + started.ByteSize() <= _KNOWN_BYTES:
            with suppress(NotPlain):  # the next ones are made of values, too, then
                known[task_id] = _Known(task, _beginning(started), _written(shared))


def _beginning(started: pb.Started) -> bytes:
    """The bytes of a `started` as far as rows share it: the first five fields."""
    first = pb.Started()
    if started.HasField("params"):
        first.params.CopyFrom(started.params)
    first.items.MergeFrom(started.items)
    first.environment = started.environment
    first.environment_version = started.environment_version
    first.agent = started.agent
    return first.SerializeToString()


def _begins(started: pb.Started, beginning: bytes) -> bool:
    """Whether the first five fields are these; may say no although they are.

    Fields are written in the order of their numbers. Reading them one by one takes several times
    as long.
    """
    said = _BYTES(started)
    end = len(beginning)
    return said.startswith(beginning) and (len(said) == end or said[end] >= _FIELD_6)


def _written(shared: Shared) -> Shared:
    """The same with its larger values in JSON. Raises NotPlain when one is not plain."""
    first = shared.first_items
    return replace(
        shared,
        document=Part(write_part(shared.document)),
        first_items=None if first is None else Part(write_part(first)),
        extras={
            # Objects that are merged with the row's own stay as they are.
            key: value if key == "metadata" else Part(write_part(value))
            for key, value in shared.extras.items()
        },
        tail=b"," + write_part(shared.echoed)[1:-1],
    )


def _begins_with_input(task: pb.Task, started: pb.Started) -> bool:
    items, params = started.items, task.params
    if params.HasField("input_text"):
        return (
            len(items) == 1
            and items[0].message.role == "user"
            and text_of(items[0]) == params.input_text
        )
    same: bool = items == params.input
    return same


def _params_of(own: bytes, used: bytes | None) -> tuple[dict[str, JsonValue], dict[str, JsonValue]]:
    in_force = {} if used is None else _document_of(used)
    asked = _document_of(own)
    document = asked | in_force
    if "input" in asked:
        document["input"] = asked["input"]
    else:
        document.pop("input", None)
    # A null stands for the default, which the API then echoes.
    echoed = {
        key: default if in_force.get(key) is None else in_force[key]
        for key, default in _ECHOED.items()
    }
    return document, echoed


def _document_of(params: bytes) -> dict[str, JsonValue]:
    return _known_document(params) if len(params) <= _KNOWN_BYTES else _read_document(params)


def _read_document(params: bytes) -> dict[str, JsonValue]:
    return params_to_dict(responses_pb2.ResponseParams.FromString(params))


def _extras_of(payload_json: bytes) -> dict[str, JsonValue]:
    known = len(payload_json) <= _KNOWN_BYTES
    return _known_extras(payload_json) if known else _read_extras(payload_json)


def _read_extras(payload_json: bytes) -> dict[str, JsonValue]:
    extras: dict[str, JsonValue] = loads(payload_json) if payload_json else {}
    return extras


_known_params = lru_cache(maxsize=256)(_params_of)
_known_document = lru_cache(maxsize=256)(_read_document)
_known_extras = lru_cache(maxsize=256)(_read_extras)
