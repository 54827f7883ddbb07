"""Calls the methods of an environment within their time limits, whatever they do.

Time that a call waits for a sandbox or a worker does not count (see `workers.slots`).
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from gymmesh_resource.errors import TookTooLong
from gymmesh_resource.model_access import CallScope, UsageCounter, in_call
from gymmesh_resource.serving.step_timer import StepTimer
from gymmesh_resource.workers import Threads, ThreadsBusy
from gymmesh_runtime.errors import queue_full
from gymmesh_runtime.text.authors_code import as_exception
from gymmesh_runtime.timers import CallTimer, Limit


class Method:
    """One method of an environment, which may take `limit_s` seconds."""

    def __init__(
        self,
        function: Callable[..., Any],
        limit_s: float,
        *,
        environment: str,
        threads: Threads,
        calls_models: bool = False,
    ) -> None:
        self.function = function
        self._limit_s = limit_s
        self._environment = environment
        self._threads = threads
        self._calls_models = calls_models
        self._is_async = inspect.iscoroutinefunction(getattr(function, "__func__", function))

    async def call(
        self,
        args: Sequence[Any] = (),
        keywords: Mapping[str, Any] = {},
        *,
        deadline: float | None = None,
        usage: UsageCounter | None = None,
    ) -> Any:
        """The method's result.

        `deadline`: when the caller gives up, in monotonic seconds, if it cannot fetch the answer
        later; it bounds the model calls of the method. `usage`: where those are counted; the
        session's by default.

        Raises `TookTooLong`, QUEUE_FULL (no thread was free within the limit; nothing was run),
        and what the method raises.
        """
        token = None
        if self._calls_models:
            end = time.monotonic() + self._limit_s
            token = in_call.set(CallScope(end if deadline is None else min(end, deadline), usage))
        try:
            if not self._is_async:
                return await self._run_in_thread(args, keywords)
            work = StepTimer(self.function(*args, **keywords), self._limit_s, self._environment)
            return await self._within(CallTimer(self._limit_s, deadline), work)
        finally:
            if token is not None:
                in_call.reset(token)

    async def _run_in_thread(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        try:
            async with self._threads.place(self._limit_s):
                work = self._threads.run(lambda: self.function(*args, **keywords))
                result = await self._within(Limit(self._limit_s), work)
        except ThreadsBusy as error:
            raise queue_full(
                f"The environment {self._environment!r} has no thread free: {error}", "threads"
            ) from None
        # A decorator may hide that a method is async: then it has only made its coroutine here.
        if inspect.isawaitable(result):
            return await self._within(Limit(self._limit_s), result)
        return result

    async def _within(self, limit: Limit, work: Awaitable[Any]) -> Any:
        try:
            with limit:
                return await work
        except TimeoutError:
            if limit.expired:
                problem = f"took longer than {self._limit_s:g} s"
                raise TookTooLong(problem, self._limit_s) from None
            raise
        except BaseException as error:
            if (fault := as_exception(error)) is error:
                raise
            raise fault from error
