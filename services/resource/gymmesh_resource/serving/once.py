"""Makes a call act once, however often it is asked for under one request_id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar, TypeVarTuple

import msgspec

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError

__all__ = ["Once"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
# Answers kept of one session; of calls before those the ids alone are kept.
KEPT_ANSWERS = 128
# Failures after which nothing was done, so that the same request is tried anew.
_NOT_RUN = frozenset(
    {
        errors_pb2.ERROR_REASON_QUEUE_FULL,
        errors_pb2.ERROR_REASON_SESSION_LIMIT,
        errors_pb2.ERROR_REASON_DRAINING,
    }
)


class Once(msgspec.Struct, Generic[T], eq=False):
    """The calls of one session by request_id.

    Each call runs in a task of its own: when the caller goes away it is not cut off, and its
    retry finds it. `cancel` ends those that run.
    """

    # A Struct, as there is one for every session: it is filled without a step in Python.

    _session_id: str
    #: Those that run: the mark of the request, and the task.
    running: dict[str, tuple[int, asyncio.Task[T]]] = {}
    _ended_calls: dict[str, tuple[int, T | BaseException]] = {}
    _forgotten: set[str] = set()

    @property
    def kept(self) -> int:
        """How many answers are kept."""
        return len(self._ended_calls)

    async def run(
        self,
        request_id: str,
        mark: int,
        start: Callable[[*Ts], Coroutine[Any, Any, T]],
        *arguments: *Ts,
    ) -> T:
        """The answer of the request's first call: `start`, with the arguments, unless there was
        one.

        `mark` is a hash of the request. Raises REQUEST_ID_REUSED when the id came with another
        one, SESSION_STATE when its answer is no longer kept, SESSION_NOT_FOUND when the session is
        closed meanwhile, and what the call raises.
        """
        running = self.running.get(request_id)
        if running is None:
            ended = self._ended_calls.get(request_id)
            if ended is not None:
                return self._again(request_id, mark, ended)
            if request_id in self._forgotten:
                raise self._answered_before()
            task = asyncio.get_running_loop().create_task(start(*arguments))
            self.running[request_id] = (mark, task)
            task.add_done_callback(partial(self._ended, request_id))
        else:
            self._compare(request_id, mark, running[0])
            task = running[1]
        await until_done(task)
        if task.cancelled():
            raise session_closed(self._session_id)
        return task.result()

    def cancel(self) -> list[asyncio.Task[T]]:
        """Cancel what runs; gives the tasks, to be waited for."""
        tasks = [task for _, task in self.running.values()]
        for task in tasks:
            task.cancel()
        return tasks

    def _ended(self, request_id: str, task: asyncio.Task[T]) -> None:
        mark, _ = self.running.pop(request_id)
        if task.cancelled():
            self._keep(request_id, mark, session_closed(self._session_id))
            return
        error = task.exception()  # also marks it as seen, when no caller is left to see it
        if error is None:
            self._keep(request_id, mark, task.result())
        elif not (isinstance(error, MeshError) and error.reason in _NOT_RUN):
            self._keep(request_id, mark, error)

    def _keep(self, request_id: str, mark: int, answer: T | BaseException) -> None:
        ended = self._ended_calls
        ended[request_id] = (mark, answer)
        if len(ended) > KEPT_ANSWERS:
            oldest = next(iter(ended))
            del ended[oldest]
            self._forgotten.add(oldest)

    def _again(self, request_id: str, mark: int, ended: tuple[int, T | BaseException]) -> T:
        self._compare(request_id, mark, ended[0])
        answer = ended[1]
        if isinstance(answer, BaseException):
            # Without the frames of those who were told before.
            raise answer.with_traceback(None)
        return answer

    def _answered_before(self) -> MeshError:
        return MeshError(
            errors_pb2.ERROR_REASON_SESSION_STATE,
            "This request was answered before, too long ago for the answer to be kept.",
            metadata={"session_id": self._session_id, "state": "answered"},
        )

    def _compare(self, request_id: str, mark: int, known: int) -> None:
        if mark != known:
            raise MeshError(
                errors_pb2.ERROR_REASON_REQUEST_ID_REUSED,
                "The request_id was used for another request before; give each its own.",
                metadata={"request_id": request_id},
            )


async def until_done(task: asyncio.Task[Any]) -> None:
    """Wait for a task's end. A caller that is cancelled leaves it running, unlike `await task`."""
    ended = asyncio.Event()
    task.add_done_callback(lambda _: ended.set())
    await ended.wait()


def session_closed(session_id: str) -> MeshError:
    """The error for a session that is not, or no longer, there."""
    return MeshError(
        errors_pb2.ERROR_REASON_SESSION_NOT_FOUND,
        "There is no such session here: it was closed, swept as idle, or never was.",
        metadata={"session_id": session_id},
    )
