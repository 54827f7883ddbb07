"""A task as an environment's code sees it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.errors import TaskInvalid
from gymmesh_responses import CodecError, dumps, dumps_sorted, loads, params_from_json

_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false",
          list: "a list", dict: "an object"}  # fmt: skip


_PARAMS: Final = "responses_create_params"
_PROMPT: Final = "prompt"
_OWN: Final = frozenset(("task_id", "environment", "agent", "seed", "tags"))

# Bytes of the payload that are shown of a task.
_SHOWN = 80
# Payloads of up to so many bytes are remembered.
_REMEMBERED = 4096


class MissingKey(TaskInvalid, KeyError):
    """A key that an environment reads but the task row does not have."""

    def __init__(self, field: str) -> None:
        TaskInvalid.__init__(self, field, "is missing. The environment reads this key")

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}"


class Payload(dict[str, Any]):
    """The payload of a task. A missing key is a fault of the task, not of the environment."""

    def __missing__(self, key: str) -> Any:
        raise MissingKey(key)


class Task(msgspec.Struct, eq=False, dict=True, weakref=True):
    """One task: its id, and the payload that the verifier reads.

    `message` is the contract's message, with the prompt in `params`. Do not change it.
    """

    # A Struct, as every call for a rollout makes one: it is filled without a step in Python.

    message: rollout_pb2.Task
    _payload: Payload | None = None

    def __repr__(self) -> str:
        keys = self.message.payload_json[:_SHOWN].decode(errors="replace")
        return f"<Task {self.id!r} {keys}{'…' * (len(self.message.payload_json) > _SHOWN)}>"

    @staticmethod
    def of(row: Mapping[str, Any]) -> Task:
        """The task of a row, as in a line of a task file.

        A row may have `prompt`, a text or a list of messages, instead of `responses_create_params`.
        A row without `task_id` gets an id derived from its content. Raises `TaskInvalid` with the
        key.
        """
        if not isinstance(row, Mapping):
            raise TaskInvalid("", "must be an object, like a line of a task file")
        if _PARAMS not in row and _PROMPT not in row:
            raise TaskInvalid(_PROMPT, f"is missing. Add this key, or {_PARAMS}")
        conversation = _PARAMS if _PARAMS in row else _PROMPT
        params = row[_PARAMS] if _PARAMS in row else {"input": row[_PROMPT]}
        payload = {
            key: value for key, value in row.items() if key != conversation and key not in _OWN
        }
        try:
            message = rollout_pb2.Task(
                task_id=str(row.get("task_id") or _content_id(row)),
                environment=row.get("environment") or "",
                agent=row.get("agent") or "",
                params=params_from_json(params),
                payload_json=dumps(payload),
                tags=row.get("tags") or {},
            )
            if row.get("seed") is not None:
                message.seed = row["seed"]
        except CodecError as error:
            raise TaskInvalid(conversation, str(error)) from None
        except (TypeError, ValueError) as error:
            raise TaskInvalid(
                "", f"a value of the keys 'environment', 'agent', 'seed' or 'tags': {error}"
            ) from None
        return Task(message)

    @property
    def id(self) -> str:
        """The task's id, unique within a run."""
        return self.message.task_id

    @property
    def tags(self) -> dict[str, str]:
        """The row's labels."""
        return dict(self.message.tags)

    @property
    def payload(self) -> dict[str, Any]:
        """The row's own keys, as a new copy for each session. Raises `TaskInvalid`, also when
        `payload[key]` reads a key that the row does not have.
        """
        if self._payload is None:
            raw = self.message.payload_json
            known = _remembered(raw) if len(raw) <= _REMEMBERED else None
            self._payload = Payload(_read(raw) if known is None else known)
        return self._payload

    def check(self) -> None:
        """Raises `TaskInvalid` for a payload that cannot be read."""
        if len(self.message.payload_json) > _REMEMBERED:
            _ = self.payload
        else:
            _remembered(self.message.payload_json)

    def require(self, field: str, *types: type) -> Any:
        """The payload's value of a required key; `types`: the types that the value may have.

        A bool is not accepted as an int. An int is accepted as a float. Raises `TaskInvalid` with
        the key.
        """
        if field not in self.payload:
            raise TaskInvalid(field, "is missing. The verifier of this environment reads this key")
        value = self.payload[field]
        if types and not any(_is(value, kind) for kind in types):
            wanted = " or ".join(_NAMES.get(kind, kind.__name__) for kind in types)
            raise TaskInvalid(field, f"must be {wanted}")
        return value


def _read(raw: bytes) -> dict[str, Any]:
    if not raw:
        return {}
    try:
        payload = loads(raw)
    except CodecError as error:
        raise TaskInvalid("payload_json", f"is not JSON: {error}") from None
    if not isinstance(payload, dict):
        raise TaskInvalid("payload_json", "is not a JSON object")
    return payload


@lru_cache(maxsize=256)
def _remembered(raw: bytes) -> dict[str, Any] | None:
    """A payload read once for a task's repeats; None where a shallow copy would not do."""
    payload = _read(raw)
    return None if any(isinstance(value, dict | list) for value in payload.values()) else payload


def _content_id(row: Mapping[str, Any]) -> str:
    written = dumps_sorted(row)
    return f"t-{hashlib.blake2b(written, digest_size=16).hexdigest()}"


def _is(value: object, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)
