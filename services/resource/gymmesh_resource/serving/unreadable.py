"""Items in a request that cannot be read: the caller's mistake, not a fault of the environment."""

from __future__ import annotations

from collections.abc import Sequence

from gymmesh.errors.v1 import errors_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_responses import CodecError, item_to_dict
from gymmesh_runtime.errors import MeshError

from ..errors import TaskInvalid
from ..task import Task
from .host import task_invalid

__all__ = ["unreadable"]

_Items = Sequence[responses_pb2.Item]


def unreadable(
    error: BaseException, environment: str, task: Task, fields: Sequence[tuple[str, _Items]] = ()
) -> MeshError | None:
    """The error for items that kept a method from its result; None for other failures.

    `fields`: the request's items, each list under the name of its field. They are looked at only
    once a method has stumbled: to read all items takes longer than most verifiers do.

    TASK_INVALID for an item of the task's prompt, else FIELD_INVALID.
    """
    if not isinstance(error, CodecError):
        return None
    found = _first("responses_create_params.input", task.message.params.input)
    if found is not None:
        return task_invalid(TaskInvalid(*found), environment, task.id)
    for name, items in fields:
        found = _first(name, items)
        if found is not None:
            field, problem = found
            return MeshError(
                errors_pb2.ERROR_REASON_FIELD_INVALID,
                f"{field} {problem}.",
                metadata={"field": field},
            )
    return None


def _first(name: str, items: _Items) -> tuple[str, str] | None:
    """The first that cannot be read, and why; None where all can."""
    for place, item in enumerate(items):
        try:
            item_to_dict(item)
        except CodecError as error:
            return f"{name}[{place}]", f"cannot be read: {error}"
    return None
