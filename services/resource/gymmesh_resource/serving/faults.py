"""Turns what environment code raised into a MeshError: whose fault it is, and where.

Invariant: an exception that is no MeshError and none that environment code raises on purpose is
logged with its traceback under an `error_id`, and the MeshError has that id, the exception's text
and its place in the author's code.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import NoReturn

from gymmesh.errors.v1 import errors_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_resource.errors import Blocked, DefinitionError, TaskInvalid, TookTooLong, WrongResult
from gymmesh_resource.task import Task
from gymmesh_resource.workers import PoolSaturated
from gymmesh_responses import CodecError, item_to_dict
from gymmesh_runtime.errors import MeshError, field_invalid, queue_full
from gymmesh_runtime.text import (
    describe,
    mask_secrets,
    shown_place,
    shown_traceback,
    traceback_id,
)

_LOGGER = logging.getLogger("gymmesh.resource")
_Reason = errors_pb2.ErrorReason
_Items = Sequence[responses_pb2.Item]


def environment_fault(
    error: BaseException,
    environment: str,
    stage: str,
    *,
    reason: _Reason.ValueType = _Reason.ERROR_REASON_ENVIRONMENT_FAULT,
) -> MeshError:
    """The MeshError for what a method raised. Logs a fault with its traceback in the author's code.

    A MeshError is returned as it is; TaskInvalid becomes TASK_INVALID, a full pool QUEUE_FULL;
    anything else is a fault, of the given reason.
    """
    if isinstance(error, MeshError):
        return error
    if isinstance(error, TaskInvalid):
        return task_invalid(error, environment)
    if isinstance(error, PoolSaturated):
        return queue_full(
            f"The environment {environment!r} has no worker process free: {error}", "workers"
        )
    error_id = traceback_id(error)
    message = "environment %s failed in %s (error_id %s)"
    _LOGGER.error(message, environment, stage, error_id, exc_info=shown_traceback(error))
    about = _about(error)
    owner = "verifier" if reason == _Reason.ERROR_REASON_VERIFIER_FAULT else "environment"
    return MeshError(
        reason,
        f"The environment {environment!r} {_what_it_did(error, about, stage)}.",
        metadata={owner: environment, "stage": stage, "error_id": error_id} | about,
    )


def callers_fault(
    error: BaseException, environment: str, task: Task, items: Mapping[str, _Items] | None = None
) -> MeshError | None:
    """The MeshError if a method failed because of what the request has: the caller's mistake.

    TASK_INVALID for a task that the method refused, or an item of its prompt that cannot be read,
    FIELD_INVALID for one of `items`, which are lists by their field in the request. Items are read
    only after a method failed, as reading all takes longer than most verifiers do. None for other
    failures.
    """
    if isinstance(error, TaskInvalid):
        return task_invalid(error, environment, task.id)
    if not isinstance(error, CodecError):
        return None
    problem = _first_problem("responses_create_params.input", task.message.params.input)
    if problem is not None:
        return task_invalid(TaskInvalid(*problem), environment, task.id)
    for field, listed in (items or {}).items():
        problem = _first_problem(field, listed)
        if problem is not None:
            return field_invalid(*problem)
    return None


def task_invalid(error: TaskInvalid, environment: str, task_id: str = "") -> MeshError:
    """TASK_INVALID for a task that the environment refuses."""
    metadata = {"task_id": task_id, "field": error.field}
    return MeshError(
        _Reason.ERROR_REASON_TASK_INVALID,
        f"The environment {environment!r} rejects the task{f' {task_id!r}' if task_id else ''}: "
        f"{error.field} {error.problem}.",
        metadata={key: value for key, value in metadata.items() if value},
    )


def raise_from(fault: MeshError, error: Exception) -> NoReturn:
    """Raise a fault with its cause, which may be the fault itself."""
    if fault is error:
        raise fault
    raise fault from error


def _first_problem(field: str, items: _Items) -> tuple[str, str] | None:
    """The first item that cannot be read, and why; None if all can."""
    for place, item in enumerate(items):
        try:
            item_to_dict(item)
        except CodecError as error:
            return f"{field}[{place}]", f"cannot be read: {error}"
    return None


def _about(error: BaseException) -> dict[str, str]:
    about = describe(error)
    if isinstance(error, Blocked):
        about["at"] = error.place
    elif isinstance(error, WrongResult):
        # Raised by this package, which looked at what the author's method returned.
        function = getattr(error.method, "__func__", error.method)
        function = inspect.unwrap(function) if callable(function) else None
        if isinstance(function, FunctionType):
            code = function.__code__
            about["at"] = shown_place(code.co_filename, code.co_firstlineno)
    return about


def _what_it_did(error: BaseException, about: Mapping[str, str], stage: str) -> str:
    if isinstance(error, WrongResult | Blocked | DefinitionError):
        method = getattr(getattr(error, "method", None), "__qualname__", "")
        problem = mask_secrets(str(error)).rstrip(".")
        place = ", ".join([*([about["at"]] if "at" in about else []), f"in {stage}"])
        return f"has a mistake{f' in {method}' if method else ''}: {problem} ({place})"
    if isinstance(error, TookTooLong):
        return f"took {error} (in {stage})"
    place = f" at {about['at']}" if "at" in about else ""
    return f"raised {about['exception']}{place} (in {stage})"
