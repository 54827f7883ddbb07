"""Calls an environment's methods: in time, off the event loop where they block, faults typed.

Invariant: what comes out of here is a result, an exception that environment code raises on
purpose (`ToolError`, `TaskInvalid`), or a MeshError. Of any other exception the MeshError has the
text and the place in the author's code; its traceback is logged under the same `error_id`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from time import perf_counter
from types import CodeType, FunctionType
from typing import Any, NoReturn

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime import stalls
from gymmesh_runtime.conceal import conceal
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.faults import shown_place, told, traceback_id
from gymmesh_runtime.stalls import note_stall
from gymmesh_runtime.timers import Limit

from ..errors import Blocked, DefinitionError, TaskInvalid, TookTooLong, WrongResult
from ..workers import PoolSaturated, Threads, ThreadsBusy
from ..workers.slots import CallTime, in_time

__all__ = ["Host", "bounded", "exited", "is_async"]

_LOGGER = logging.getLogger("gymmesh.resource")
_Reason = errors_pb2.ErrorReason
_NOTICED_S = stalls.NOTICED_S


class Host:
    """Where the methods of one environment run."""

    def __init__(self, name: str, threads: Threads) -> None:
        #: The environment's.
        self.name = name
        self._threads = threads

    def call(
        self, method: Callable[..., Any], *args: Any, limit_s: float
    ) -> Coroutine[Any, Any, Any]:
        """The method's result, had within `limit_s` seconds once it runs; to be awaited.

        Raises `TookTooLong`, QUEUE_FULL (no thread was free for that time; nothing was run),
        and what the method raises.
        """
        if is_async(method):
            return bounded(method(*args), limit_s, self.name)
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
                f"The environment {self.name!r} has no thread free: {error}",
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
            return task_invalid(error, self.name)
        if isinstance(error, PoolSaturated):
            return MeshError(
                _Reason.ERROR_REASON_QUEUE_FULL,
                f"The environment {self.name!r} has no worker process free: {error}",
                metadata={"queue": "workers"},
                retry_after_s=1.0,
            )
        reason = _Reason.ERROR_REASON_ENVIRONMENT_FAULT if reason is None else reason
        error_id = traceback_id(error)
        message = "environment %s failed in %s (error_id %s)"
        _LOGGER.error(message, self.name, stage, error_id, exc_info=error)
        about = _about(error)
        return MeshError(
            reason,
            f"The environment {self.name!r} {_what(error, about)} (in {stage}).",
            metadata=self._metadata(reason, stage) | {"error_id": error_id} | about,
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
        return {key: self.name, "stage": stage}


def _about(error: BaseException) -> dict[str, str]:
    about = told(error)
    if isinstance(error, Blocked):
        about["at"] = error.place
    elif isinstance(error, WrongResult):
        # Raised by our own code, which looked at what the author's gave.
        function = getattr(error.method, "__func__", error.method)
        function = inspect.unwrap(function) if callable(function) else None
        if isinstance(function, FunctionType):
            code = function.__code__
            about["at"] = shown_place(code.co_filename, code.co_firstlineno)
    return about


def _what(error: BaseException, about: Mapping[str, str]) -> str:
    if isinstance(error, WrongResult | Blocked | DefinitionError):
        method = getattr(getattr(error, "method", None), "__qualname__", "")
        said = conceal(str(error)).rstrip(".")
        place = f" ({about['at']})" if "at" in about else ""
        return f"is written wrongly: {f'{method}: ' if method else ''}{said}{place}"
    if isinstance(error, TookTooLong):
        return f"took {error}"
    place = f" at {about['at']}" if "at" in about else ""
    return f"raised {about['exception']}{place}"


def is_async(method: Callable[..., Any]) -> bool:
    """Whether a call of the method gives a coroutine."""
    function = getattr(method, "__func__", method)
    return inspect.iscoroutinefunction(function)


async def bounded(
    call: Coroutine[Any, Any, Any], limit_s: float, owner: str = "", deadline: float | None = None
) -> Any:
    """The result of an async method's call, in time; raises as `Host.call`.

    Waiting for a place does not count (see `waiting`), but ends before the caller's `deadline`
    (monotonic seconds).
    """
    time = CallTime(deadline)
    token = in_time.set(time)
    try:
        return await _bounded(_Steps(call, limit_s, owner), limit_s, time)
    finally:
        in_time.reset(token)


class _Steps(Generator[Any, Any, Any]):
    """An async method's call, whose steps from one wait to the next are timed.

    No timer can end a step that blocks. One longer than the limit raises `Blocked` when it ends,
    whatever it came to.
    """

    __slots__ = ("_call", "_limit_s", "_owner")

    def __init__(self, call: Coroutine[Any, Any, Any], limit_s: float, owner: str) -> None:
        self._call, self._limit_s, self._owner = call, limit_s, owner

    def send(self, value: Any) -> Any:
        started = perf_counter()
        try:
            return self._call.send(value)
        finally:
            if (took := perf_counter() - started) > _NOTICED_S:
                self._blocked(took)

    def throw(self, *error: Any) -> Any:
        started = perf_counter()
        try:
            return self._call.throw(*error)
        finally:
            if (took := perf_counter() - started) > _NOTICED_S:
                self._blocked(took)

    def close(self) -> None:
        self._call.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def _blocked(self, seconds: float) -> None:
        """Note the stall; raises `Blocked` for one that was too long."""
        method: str = self._call.__qualname__  # type: ignore[attr-defined]  # of a native one
        code: CodeType = self._call.cr_code  # type: ignore[attr-defined]
        place = shown_place(code.co_filename, code.co_firstlineno)
        note_stall(self._owner, method, place, seconds)
        if seconds > self._limit_s:
            self._call.close()
            raise Blocked(method, place, seconds, self._limit_s)


async def _bounded(work: Awaitable[Any], limit_s: float, time: CallTime | None = None) -> Any:
    limit = Limit(limit_s)
    if time is not None:
        time.begin(limit, limit_s)
    try:
        with limit:
            try:
                return await work
            finally:
                if time is not None:
                    time.end()
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
