"""Times the steps of an async method, to find one that blocks the event loop.

No timer can interrupt a method that blocks where it should await. Timing each step from one await
to the next finds it among the calls that had to wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from time import perf_counter
from types import CodeType
from typing import Any

from gymmesh_resource.errors import Blocked
from gymmesh_runtime.telemetry.stalls import NOTICED_S, note_stall
from gymmesh_runtime.text import shown_place


class StepTimer(Generator[Any, Any, Any]):
    """An awaitable in place of an async method's call.

    A step longer than a second is noted (see `gymmesh_runtime.telemetry.stalls`). One longer
    than `limit_s` raises `Blocked` when it ends, whatever it returned or raised.
    """

    __slots__ = ("_call", "_environment", "_limit_s")

    def __init__(self, call: Coroutine[Any, Any, Any], limit_s: float, environment: str) -> None:
        self._call, self._limit_s, self._environment = call, limit_s, environment

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def send(self, value: Any) -> Any:
        """Run the next step."""
        return self._timed(self._call.send, value)

    def throw(self, *error: Any) -> Any:
        """Run the next step with an exception, such as a cancellation."""
        return self._timed(self._call.throw, *error)

    def _timed(self, step: Callable[..., Any], *given: Any) -> Any:
        started = perf_counter()
        try:
            return step(*given)
        finally:
            if (seconds := perf_counter() - started) > NOTICED_S:
                self._blocked(seconds)

    def close(self) -> None:
        self._call.close()

    def _blocked(self, seconds: float) -> None:
        method: str = self._call.__qualname__  # type: ignore[attr-defined]  # of a native one
        code: CodeType = self._call.cr_code  # type: ignore[attr-defined]
        place = shown_place(code.co_filename, code.co_firstlineno)
        note_stall(self._environment, method, place, seconds)
        if seconds > self._limit_s:
            self._call.close()
            raise Blocked(method, place, seconds, self._limit_s)
