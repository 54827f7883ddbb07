"""Calls an environment's methods: in time, off the event loop where they block, faults typed.

Invariant: what comes out of here is a result, an exception that environment code raises on
purpose (`ToolError`, `TaskInvalid`), or a MeshError. The text of any other exception stays in
the log, under the `error_id` that the MeshError carries.
"""

from __future__ import annotations

import dis
import inspect
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import FunctionType
from typing import Any, NoReturn

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.begun import resumed
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.timers import Limit

from .errors import TaskInvalid, TookTooLong
from .threads import Threads, ThreadsBusy

__all__ = ["Host", "at_once", "bounded", "exited", "is_async", "never_waits"]

_LOGGER = logging.getLogger("gymmesh.resource")
_Reason = errors_pb2.ErrorReason


class Host:
    """Where the methods of one environment run."""

    def __init__(self, name: str, threads: Threads) -> None:
        self._name = name
        self._threads = threads

    def call(
        self, method: Callable[..., Any], *args: Any, limit_s: float
    ) -> Coroutine[Any, Any, Any]:
        """The method's result, had within `limit_s` seconds once it runs; to be awaited.

        Raises `TookTooLong`, QUEUE_FULL (no thread was free for that time; nothing was run),
        and what the method raises.
        """
        if is_async(method):
            return bounded(method(*args), limit_s)
        return self.call_plain(method, args, {}, limit_s)

    async def call_plain(
        self,
        method: Callable[..., Any],
        args: Sequence[Any],
        named: Mapping[str, Any],
        limit_s: float,
    ) -> Any:
        """`call`, of a method that is not async."""
        try:
            async with self._threads.place(limit_s):
                call = self._threads.run(lambda: method(*args, **named))
                result = await _bounded(call, limit_s)
        except ThreadsBusy as error:
            raise MeshError(
                _Reason.ERROR_REASON_QUEUE_FULL,
                f"The environment {self._name!r} has no thread free: {error}",
                metadata={"queue": "threads"},
                retry_after_s=1.0,
            ) from None
        # A plain method may hand back a coroutine, when a decorator hides that it is async.
        return await _bounded(result, limit_s) if inspect.isawaitable(result) else result

    def fault(
        self, error: BaseException, stage: str, *, reason: _Reason.ValueType | None = None
    ) -> MeshError:
        """The MeshError for what a method raised; logs what is a fault, with its traceback.

        `reason` is ENVIRONMENT_FAULT unless given. MeshErrors pass as they are.
        """
        if isinstance(error, MeshError):
            return error
        if isinstance(error, TaskInvalid):
            return task_invalid(error, self._name)
        reason = _Reason.ERROR_REASON_ENVIRONMENT_FAULT if reason is None else reason
        error_id = secrets.token_hex(4)
        _LOGGER.error(
            "environment %s failed in %s (error_id %s)", self._name, stage, error_id, exc_info=error
        )
        what = (
            "took too long" if isinstance(error, TookTooLong) else f"raised {type(error).__name__}"
        )
        return MeshError(
            reason,
            f"The environment {self._name!r} {what} in {stage}; its log has error_id {error_id}.",
            metadata=self._metadata(reason, stage) | {"error_id": error_id},
        )

    def raise_fault(
        self, error: Exception, stage: str, *, reason: _Reason.ValueType | None = None
    ) -> NoReturn:
        """Raise the MeshError for what a method raised, with that as its cause."""
        fault = self.fault(error, stage, reason=reason)
        if fault is error:
            raise fault
        raise fault from error

    def _metadata(self, reason: _Reason.ValueType, stage: str) -> dict[str, str]:
        key = "verifier" if reason == _Reason.ERROR_REASON_VERIFIER_FAULT else "environment"
        return {key: self._name, "stage": stage}


def is_async(method: Callable[..., Any]) -> bool:
    """Whether a call of the method gives a coroutine."""
    function = getattr(method, "__func__", method)
    return inspect.iscoroutinefunction(function)


def never_waits(method: Callable[..., Any]) -> bool:
    """Whether a method is known to end without waiting: async, and nothing awaited in its code."""
    function = getattr(method, "__func__", method)
    if not (is_async(function) and isinstance(function, FunctionType)):
        return False
    # Only this lets a coroutine pause: whatever is awaited is compiled to it.
    return all(step.opname != "YIELD_VALUE" for step in dis.get_instructions(function))


async def bounded(call: Coroutine[Any, Any, Any], limit_s: float) -> Any:
    """The result of an async method's call, in time; raises as `Host.call`.

    Runs to where it first waits before a timer is set: most tools and verifiers never do, and a
    timer costs more than they.
    """
    try:
        waits_for = call.send(None)
    except StopIteration as ended:
        return ended.value
    except SystemExit as error:
        raise exited(error) from error
    return await _bounded(resumed(call, waits_for), limit_s)


async def at_once(call: Coroutine[Any, Any, Any], _limit_s: float) -> Any:
    """`bounded`, for the call of a method that never waits: nothing could end it early."""
    try:
        return await call
    except SystemExit as error:
        raise exited(error) from error


async def _bounded(work: Awaitable[Any], limit_s: float) -> Any:
    limit = Limit(limit_s)
    try:
        with limit:
            return await work
    except TimeoutError:
        if limit.expired:
            raise TookTooLong(f"longer than {limit_s:g} s") from None
        raise
    except SystemExit as error:
        raise exited(error) from error


def exited(error: SystemExit) -> RuntimeError:
    """An environment that calls sys.exit() must not take the service down."""
    return RuntimeError(f"SystemExit({error.code!r})")


def task_invalid(error: TaskInvalid, environment: str, task_id: str = "") -> MeshError:
    """TASK_INVALID for a task that the environment refuses."""
    metadata: Mapping[str, str] = {"task_id": task_id, "field": error.field}
    return MeshError(
        _Reason.ERROR_REASON_TASK_INVALID,
        f"The environment {environment!r} cannot take the task"
        f"{f' {task_id!r}' if task_id else ''}: {error.field} {error.problem}.",
        metadata={key: value for key, value in metadata.items() if value},
    )
